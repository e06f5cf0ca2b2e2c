"""What people have on disk or in object stores, as sources: images, tables, texts and arrays, read by row range."""

from offramp.data.dataset import Dataset
from offramp.data.formats import FORMATS, open_data
from offramp.data.location import Location, locate
from offramp.data.subset import Subset, sample

__all__ = ["FORMATS", "Dataset", "Location", "Subset", "locate", "open_data", "sample"]
