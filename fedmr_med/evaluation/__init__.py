"""How a model is scored: counts that add up over sites, the clinical figures of them, and results as files."""

MAX_IMAGES = 10**7
"""The most images that a reply can tell of. Sums of such numbers stay exact, whatever the sites tell."""
