"""The ``openai`` client against ``kvps serve``: documents go along as ids or texts."""

import sys

import openai


def answer(url: str, question: str, text: str) -> str:
    """Answer from a text; its packets are found by its content if the store has them."""
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none")
    completion = client.chat.completions.create(
        model=client.models.list().data[0].id,
        messages=[{"role": "user", "content": question}],
        temperature=0,
        extra_body={"documents": [{"text": text}]},
    )
    return completion.choices[0].message.content or ""


if __name__ == "__main__":
    print(answer(sys.argv[1], "Where does the Rhine rise?", "The Rhine rises in the Swiss Alps."))
