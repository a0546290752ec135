"""The benchmark datasets: one record each, behind entry points of this package; how they are read and downloaded."""
