"""The format of a saved model, and how its parts are written and read."""

__all__: list[str] = []
