"""What every process of the product does alike: it stops by signals and writes a log."""
