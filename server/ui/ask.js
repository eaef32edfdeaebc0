// The form, and the answers below it, the newest first.

const MOST_CARDS = 20;
const form = byId("ask");
const cards = [];

/** What the form asks, as POST /generate takes it: fields that are empty stay out. */
function askedOf(fields) {
  const documents = fields.documents.value.split("\n").map((id) => id.trim()).filter(Boolean);
  const asked = { query: fields.query.value.trim(), max_new_tokens: Number(fields.max_new_tokens.value) };
  if (documents.length) asked.documents = documents;
  else if (fields.top_k.value) asked.top_k = Number(fields.top_k.value);
  for (const name of ["temperature", "seed", "repetition_penalty"]) {
    if (fields[name].value !== "") asked[name] = Number(fields[name].value);
  }
  for (const name of ["decode", "consistency", "exactness"]) asked[name] = fields[name].value;
  if (!byId("namespace-field").hidden) asked.namespace = fields.namespace.value;
  return asked;
}

function ask(asked) {
  const card = new AnswerCard(asked, { onAgain: ask });
  byId("empty").hidden = true;
  cards.unshift(card);
  byId("answers").prepend(card.root);
  card.root.scrollIntoView({ block: "nearest" });
  while (cards.length > MOST_CARDS && !cards.at(-1).isRunning) cards.pop().root.remove();
  showRunning();
  card.run().finally(() => {
    showRunning();
    refreshFigures();
  });
}

function showRunning() {
  document.body.classList.toggle("busy", cards.some((card) => card.isRunning));
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  const asked = askedOf(form.elements);
  if (!asked.query) return;
  ask(asked);
  form.elements.query.select(); // the next question replaces this one
});

form.elements.query.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  form.requestSubmit();
});

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !byId("key-dialog").open) cards.find((card) => card.isRunning)?.stop();
});

// A field that is not valid must be seen, and those of closed options are not.
form.addEventListener("invalid", (event) => {
  if (byId("options").contains(event.target)) byId("options").open = true;
}, true);
