"""Builds a source from its OperatorConfig."""

from __future__ import annotations

from collections.abc import Sequence

from ......schemas.types import OperatorConfig
from .....graph.operators import OperatorKind
from .collection import CollectionSource
from .custom import CustomSource
from .files import FilesSource
from .generator import GeneratorSource
from .socket_text import SocketTextSource
from .source import Source


def build_source(config: OperatorConfig, head: Sequence[OperatorConfig] = ()) -> Source:
    """Builds a source that a StreamTask reads. `head`: see VertexParts.

    Raises UserCodeError, ValueError, msgspec.ValidationError.
    """
    match OperatorKind(config.kind):
        case OperatorKind.SOCKET_TEXT_STREAM:
            return SocketTextSource.of(config)
        case OperatorKind.COLLECTION:
            return CollectionSource(config)
        case OperatorKind.FILES:
            return FilesSource(config, head)
        case OperatorKind.GENERATOR:
            return GeneratorSource(config)
        case OperatorKind.CUSTOM_SOURCE:
            return CustomSource(config)
        case kind:
            raise ValueError(
                f"operator {config.name!r} of kind {kind} is not a source that a StreamTask reads"
            )
