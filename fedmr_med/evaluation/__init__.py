"""How a model is scored: counts that add up over sites, the clinical figures of them, and results as files."""
