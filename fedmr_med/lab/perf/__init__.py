"""``fedmr-med perf``: what each part costs, as ratios measured side by side in one run."""
