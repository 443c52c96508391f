"""A program <-> its file.

content_pool.py     blobs -> each of them once
segments.py         blobs -> aligned segments behind the flatbuffer
byte_order.py       this machine -> whether its numbers are as in files
header.py           where the segments begin
serialize.py        a program -> bytes
seal.py             bytes -> the same, sealed with checksums
atomic_file.py      bytes -> a file, whole or not at all
segment_source.py   a file -> its segments, when they are asked for
checked_source.py   a sealed file -> its content, in which damage is found
deserialize.py      bytes -> a checked program
"""
