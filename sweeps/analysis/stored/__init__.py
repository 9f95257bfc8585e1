"""Parts of an analysis that the driver computes and stores: they take an engine or many curves."""
