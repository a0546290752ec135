from tests.export.conftest import pictures, run

__all__ = ["pictures", "run"]
