"""JSON Schemas of the files that stepsim reads and writes."""

from stepsim.show.schemas.catalogue import FORMATS, Format, schema, schema_json

__all__ = ["FORMATS", "Format", "schema", "schema_json"]
