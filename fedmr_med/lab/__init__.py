"""For researchers: benchmarks, comparisons, studies, attacks and measurements. No hospital needs any of it."""
