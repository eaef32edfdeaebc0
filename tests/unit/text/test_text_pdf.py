"""PDF files with a text layer, and the three kinds that have none to give."""

from __future__ import annotations

import io

import pypdf
import pytest
from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject

from kvpacket_store.errors import DocumentError
from kvpacket_store.text.files import document_from_bytes

FONT = DictionaryObject(
    {
        NameObject("/Type"): NameObject("/Font"),
        NameObject("/Subtype"): NameObject("/Type1"),
        NameObject("/BaseFont"): NameObject("/Helvetica"),
    }
)


def pdf(*pages: str, title: str | None = None, password: str | None = None) -> bytes:
    writer = pypdf.PdfWriter()
    for text in pages:
        page = writer.add_blank_page(width=300, height=300)
        fonts = DictionaryObject({NameObject("/F1"): writer._add_object(FONT)})
        page[NameObject("/Resources")] = DictionaryObject({NameObject("/Font"): fonts})
        stream = DecodedStreamObject()
        lines = " ".join(f"({line}) Tj 0 -14 Td" for line in text.splitlines())
        stream.set_data(f"BT /F1 12 Tf 20 250 Td {lines} ET".encode())
        page[NameObject("/Contents")] = writer._add_object(stream)
    if title:
        writer.add_metadata({"/Title": title})
    if password is not None:
        writer.encrypt(password, owner_password="owner", algorithm="RC4-128")
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


def read(data: bytes, name: str = "a.pdf"):
    return document_from_bytes(name, name, data, name)


def test_pages_become_paragraphs_and_the_title_is_kept():
    document = read(pdf("First page.\nSecond line.", "Second page.", title="A report"))

    assert document.text == "First page.\nSecond line.\n\nSecond page."
    assert document.metadata["title"] == "A report"
    assert document.metadata["media_type"] == "application/pdf"


def test_a_pdf_is_known_by_its_bytes_where_the_name_says_nothing():
    assert read(pdf("Hello."), name="download").metadata["media_type"] == "application/pdf"


def test_a_file_that_only_forbids_printing_is_read():
    assert read(pdf("Readable.", password="")).text == "Readable."


@pytest.mark.parametrize(
    ("data", "remedy"),
    [
        (pdf("Secret.", password="pass"), "encrypted.*qpdf --decrypt"),
        (pdf("", ""), "no text layer.*ocrmypdf"),
        (pdf(), "without pages"),
        (b"%PDF-1.7\nnothing of the kind", "cannot be read as PDF.*repair"),
        (pdf("Cut off.")[:200], "cannot be read as PDF.*repair"),
        (b"", "cannot be read as PDF.*repair"),
    ],
    ids=["encrypted", "pictures", "no pages", "broken", "truncated", "no bytes"],
)
def test_a_file_without_text_is_refused_with_a_remedy(data, remedy):
    with pytest.raises(DocumentError, match=rf"(?s)'a\.pdf'.*{remedy}"):
        read(data)


def test_damage_never_ends_in_another_error():
    whole = pdf("Some text that is damaged.", title="T")
    outcomes = set()
    for position in range(0, len(whole), 7):
        damaged = bytearray(whole)
        damaged[position] ^= 0x55
        try:
            outcomes.add(read(bytes(damaged)).id)
        except DocumentError as error:
            outcomes.add(error.document_id)

    assert outcomes == {"a.pdf"}
