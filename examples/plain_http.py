"""Plain HTTP against ``kvps serve``: file a text, ask about it."""

import json
import sys
import urllib.request
from typing import Any


def post(url: str, body: dict[str, Any]) -> dict[str, Any]:
    """Send JSON, and return the JSON that comes back."""
    headers = {"Content-Type": "application/json"}  # with keys: "Authorization": "Bearer KEY"
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)  # noqa: S310
    with urllib.request.urlopen(request) as response:  # noqa: S310
        return dict(json.load(response))


def answer(url: str, question: str, document: dict[str, str]) -> dict[str, Any]:
    """Answer from one document; filing it again costs nothing."""
    post(f"{url}/ingest", {"documents": [document]})
    return post(f"{url}/generate", {"query": question, "documents": [document["id"]]})


if __name__ == "__main__":
    text = {"id": "rhine", "text": "The Rhine rises in the Swiss Alps."}
    print(answer(sys.argv[1], "Where does the Rhine rise?", text)["answer"])
