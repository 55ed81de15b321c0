"""Messages of Chakra's execution traces: metadata of a rank, then one for every node.

`chakra_messages.toml` says which fields they have. A file is a sequence of messages, each after its
length.
"""

from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClassesForFiles

from stepsim.base.structs import Values, shipped

_SCHEMA = FileDescriptorProto(**shipped(__file__, "chakra_messages.toml", Values))
_POOL = DescriptorPool()
_POOL.AddSerializedFile(_SCHEMA.SerializeToString())
_MESSAGES: Values = GetMessageClassesForFiles([_SCHEMA.name], _POOL)

AttributeMessage = _MESSAGES["Attribute"]
"""A name and a value: a number or a text."""
MetadataMessage = _MESSAGES["Metadata"]
"""What a file says of its rank."""
NodeMessage = _MESSAGES["Node"]
"""What a rank runs, and the nodes that it waits for."""
