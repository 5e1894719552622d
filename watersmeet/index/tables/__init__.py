"""Tables of range partitions: LLAT and the RaP-Table over it."""
