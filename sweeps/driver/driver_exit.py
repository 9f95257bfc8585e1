"""What a driver's process ends with beside 0; the runner reads it, and must not load Ray."""

#: The store was away; the cluster did not answer; the sweep belongs to another driver.
NO_STORE, NO_CLUSTER, TAKEN = 74, 75, 76
