// One question and its answer, from the first piece to the figures.

class AnswerCard {
  constructor(asked, { onAgain }) {
    this._asked = asked;
    this._aborter = new AbortController();
    this._final = element("span", { className: "final" });
    this._drafted = element("span", { className: "drafted", "aria-hidden": "true" });
    this._status = element("p", { className: "progress" });
    this._answer = element("div", { className: "answer", "aria-live": "polite", "aria-atomic": "true" }, this._final, this._drafted);
    this._figures = element("div", { className: "figures" });
    this._stop = element("button", { type: "button", className: "quiet", onclick: () => this.stop() }, "Stop");
    this._again = element("button", { type: "button", className: "quiet", hidden: true, onclick: () => onAgain(asked) }, "Ask again");
    this.root = element(
      "article",
      { className: "card running" },
      element("div", { className: "row" }, element("h3", {}, asked.query), this._stop, this._again),
      this._answer,
      this._status,
      this._figures,
    );
    this.isRunning = true;
    this._text = "";
    this._draft = "";
  }

  /** Close the connection: the server stops decoding within one step. */
  stop() {
    this._aborter.abort();
  }

  async run() {
    this._answer.setAttribute("aria-busy", "true");
    this._startedMs = performance.now();
    this._clock = setInterval(() => this._tick(), 100);
    this._tick();
    try {
      const body = { ...this._asked, stream: true, provisional: true };
      const response = await request("/generate", { body, signal: this._aborter.signal });
      for await (const [name, data] of eventsOf(response)) this._take(name, data);
      if (this.isRunning) throw new Problem({ title: "The answer ended early", detail: "The server closed the connection. Try again." });
    } catch (error) {
      this._end(error.name === "AbortError" ? "stopped" : "failed", error);
    }
  }

  _take(name, data) {
    if (name === "error") throw new Problem(data);
    if (name === "provisional") this._draft += data.text;
    else if (data.usage) return this._finish(data);
    else {
      this._text += data.text;
      this._draft = ""; // final text says again what holds of it
    }
    this._paint();
  }

  /** Show what there is at the next frame: pieces of one step come together. */
  _paint() {
    this._frame ??= requestAnimationFrame(() => {
      this._frame = null;
      this._final.textContent = this._text;
      this._drafted.textContent = this._draft;
    });
  }

  _tick() {
    const elapsed = duration(performance.now() - this._startedMs);
    this._status.textContent = `${this._text || this._draft ? "decoding" : "finding and placing packets"}, ${elapsed}`;
  }

  _finish(answer) {
    this._text = answer.answer || "(The model gave no text.)";
    this._end("done");
    this._figures.append(
      _headline(answer),
      packetStrip(answer, this._asked.consistency),
      element("div", { className: "pair" }, timeBars(answer.timings_ms), draftBars(answer.usage, answer.decode)),
    );
    if (answer.fallbacks.length) this._figures.append(_fallbackNote(answer.fallbacks));
  }

  _end(how, error) {
    if (!this.isRunning) return;
    this.isRunning = false;
    clearInterval(this._clock);
    this._draft = "";
    this._paint();
    this._answer.setAttribute("aria-busy", "false");
    this.root.classList.replace("running", how);
    this._stop.hidden = true;
    this._again.hidden = false;
    this._status.hidden = how === "done";
    if (how === "stopped") this._status.textContent = "Stopped. The connection is closed, and the server decodes no further.";
    if (how === "failed") this._status.replaceWith(problemNote(error));
  }
}

/** An error as people read it. */
function problemNote(error) {
  const title = error.title ?? "This page made a mistake";
  return element(
    "div",
    { className: "problem", role: "alert" },
    element("b", {}, error.status ? `${title} (${error.status})` : title),
    element("p", {}, error.detail ?? String(error)),
  );
}

function _headline(answer) {
  const { usage, timings_ms: timings } = answer;
  const first = timings.first_token ?? timings.total;
  const perSecond = timings.total > 0 ? (1000 * usage.completion_tokens) / timings.total : 0;
  const tiles = [
    [duration(first), "to the first token"],
    [usage.prompt_tokens ? percent(usage.cached_tokens / usage.prompt_tokens) : "0 %", `of ${count(usage.prompt_tokens)} prompt tokens reused`],
    [counted(usage.completion_tokens, "token"), `in ${duration(timings.total)}, ${perSecond.toFixed(1)} a second`],
  ];
  return element(
    "dl",
    { className: "headline" },
    ...tiles.map(([value, what]) => element("div", {}, element("dt", {}, what), element("dd", {}, value))),
  );
}

function _fallbackNote(fallbacks) {
  const note = element("div", { className: "warning" }, element("b", {}, `${counted(fallbacks.length, "packet")} could not be used and ran through the model again`));
  for (const { packet_key: key, reason } of fallbacks) note.append(element("p", {}, `${key.slice(0, 12)}: ${reason}`));
  return note;
}
