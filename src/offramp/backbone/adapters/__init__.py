"""Networks of other libraries as backbones, one file per library; import the file of the library you have."""

__all__: list[str] = []
