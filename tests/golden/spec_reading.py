"""What the second decoder's files share: numbers, sections, refusals."""

import xxhash

ITEM_BYTES = {"bf16": 2, "fp16": 2, "fp32": 4, "fp8_e4m3": 1, "fp8_e5m2": 1}
CORRUPT, TRUNCATED, UNSUPPORTED = (
    "CorruptRecordError",
    "TruncatedRecordError",
    "UnsupportedFormatError",
)


class RefusedError(Exception):
    """The record is refused; the message is the name of the error."""


def refuse_if(condition, error):
    if condition:
        raise RefusedError(error)


def number(data, offset, bits):
    return int.from_bytes(data[offset : offset + bits // 8], "little")


def xxh3(data):
    return xxhash.xxh3_64_intdigest(data)


class Sections:
    """Take the sections of a body one after the other."""

    def __init__(self, body, at):
        self.body, self.at = body, at

    def __call__(self, length):
        refuse_if(self.at + length > len(self.body), CORRUPT)
        self.at += length
        return self.body[self.at - length : self.at]
