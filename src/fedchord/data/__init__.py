"""Clients' data: sources and readers, partitions, label noise, local splits, and the federation made of them."""

from fedchord.data.build import federate
from fedchord.data.features import Feature
from fedchord.data.federation import DataSet, Federation, Inputs, prepare
from fedchord.data.formats.pictures import from_folder, from_picture_list
from fedchord.data.formats.readers import from_arrays, from_csv, from_npz, from_torch
from fedchord.data.formats.texts import from_texts
from fedchord.data.noise import corrupt, transition
from fedchord.data.partition import (
    PARTITIONS,
    ClassDirichlet,
    Dirichlet,
    Iid,
    Natural,
    Partition,
    Pathological,
    make_partition,
)
from fedchord.data.picture import split_picture
from fedchord.data.ragged import Ragged
from fedchord.data.scaling import Scaling
from fedchord.data.sources import SOURCES, Source, data_root, load, status
from fedchord.data.split import split_client, split_clients
from fedchord.data.table import from_table

__all__ = [
    "PARTITIONS",
    "SOURCES",
    "ClassDirichlet",
    "DataSet",
    "Dirichlet",
    "Feature",
    "Federation",
    "Iid",
    "Inputs",
    "Natural",
    "Partition",
    "Pathological",
    "Ragged",
    "Scaling",
    "Source",
    "corrupt",
    "data_root",
    "federate",
    "from_arrays",
    "from_csv",
    "from_folder",
    "from_npz",
    "from_picture_list",
    "from_table",
    "from_texts",
    "from_torch",
    "load",
    "make_partition",
    "prepare",
    "split_client",
    "split_clients",
    "split_picture",
    "status",
    "transition",
]
