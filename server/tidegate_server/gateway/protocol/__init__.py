"""HiveServer2's Thrift protocol over sockets."""
