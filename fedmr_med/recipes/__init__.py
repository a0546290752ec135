"""Jobs of this toolkit as FLARE recipes: for ``SimEnv``, ``PocEnv``, ``ProdEnv`` and ``export``."""

from fedmr_med.recipes.recipe import FedMRRecipe, MethodRecipe

__all__ = ["FedMRRecipe", "MethodRecipe"]
