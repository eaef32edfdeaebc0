// Stacked bars with their legend, and a share of a whole.

/** Draw parts [{name, value, text, kind}] side by side; each part's name and text are below. */
function stackedBar(label, parts) {
  const shown = parts.filter((part) => part.value > 0);
  const bar = element("div", { className: "bar", "aria-hidden": "true" });
  for (const part of shown) {
    const mark = element("i", { className: `part ${part.kind}`, title: `${part.name}: ${part.text}` });
    mark.style.flexGrow = part.value;
    bar.append(mark);
  }
  const legend = element("ul", { className: "legend", "aria-label": label });
  for (const part of shown) {
    legend.append(
      element(
        "li",
        {},
        element("i", { className: `swatch ${part.kind}`, "aria-hidden": "true" }),
        element("span", {}, part.name),
        element("b", {}, part.text),
      ),
    );
  }
  return element("div", { className: "stacked" }, bar, legend);
}

/** Draw a share, 0 to 1. */
function shareBar(share, kind) {
  const bar = element("div", { className: "share", "aria-hidden": "true" });
  const filled = element("i", { className: `part ${kind}` });
  filled.style.width = `${100 * Math.min(1, Math.max(0, share))}%`;
  bar.append(filled);
  return bar;
}

const STAGES = [
  ["retrieve", "find segments", "retrieve"],
  ["load", "read records", "load"],
  ["decode", "bytes to K, V", "decode"],
  ["assemble", "place in slots", "assemble"],
  ["prefill", "prefill", "prefill"],
];

/** Where the time went: the stages before the first token, and the whole. */
function timeBars(timings) {
  const stages = STAGES.map(([field, name, kind]) => ({
    name,
    kind: `stage-${kind}`,
    value: timings[field] ?? 0,
    text: duration(timings[field] ?? 0),
  }));
  const first = timings.first_token ?? timings.total;
  const told = stages.reduce((sum, stage) => sum + stage.value, 0);
  const rest = first - told;
  // Less than this share is the time between two clocks.
  if (rest > 0.02 * first) {
    stages.push({ name: "wait, first step", kind: "stage-rest", value: rest, text: duration(rest) });
  }
  const whole = [
    { name: "to the first token", kind: "stage-first", value: first, text: duration(first) },
    { name: "the rest of the answer", kind: "stage-rest", value: timings.total - first, text: duration(timings.total - first) },
  ];
  return element(
    "section",
    { className: "panel" },
    element("h4", {}, "Where the time went"),
    stackedBar("stages before the first token", stages),
    told > first ? element("p", { className: "note" }, "Stages overlap: together they say more than the clock.") : null,
    stackedBar("the whole answer", whole),
  );
}

/** What was drafted, and what of it the exact K and V chose. */
function draftBars(usage, decode) {
  const accepted = usage.accepted_draft_tokens;
  const rejected = usage.rejected_draft_tokens;
  const panel = element("section", { className: "panel" }, element("h4", {}, "Drafts"));
  if (accepted + rejected === 0) {
    panel.append(element("p", { className: "note" }, `Nothing was drafted (${decode.mode}): one token a step.`));
  } else {
    panel.append(
      stackedBar("drafted tokens", [
        { name: "accepted", kind: "accepted", value: accepted, text: count(accepted) },
        { name: "rejected", kind: "rejected", value: rejected, text: count(rejected) },
      ]),
    );
  }
  panel.append(factList(_draftFacts(decode)));
  return panel;
}

function _draftFacts(decode) {
  const drafted = decode.rounds > 0;
  return [
    ["mode", `${decode.mode}, ${decode.exactness}`],
    drafted && ["rounds", count(decode.rounds)],
    drafted && decode.mean_accepted !== null && ["accepted a round", two(decode.mean_accepted)],
    drafted && decode.draft_bits_per_scalar !== null && ["bits a scalar of the draft", two(decode.draft_bits_per_scalar)],
    drafted && decode.draft_tokens_kept_share !== null && ["slots that the draft keeps", percent(decode.draft_tokens_kept_share)],
    ["exact K, V in memory from the start", decode.pinned ? "yes" : "no"],
    decode.guarded > 0 && ["rows near a tie, decided alone", count(decode.guarded)],
    decode.seed !== null && ["seed", String(decode.seed)],
  ].filter(Boolean);
}

/** A list of [what, value, how it stands]. */
function factList(facts) {
  const list = element("dl", { className: "facts" });
  for (const [what, value, standing] of facts) {
    list.append(element("div", { className: standing ?? "" }, element("dt", {}, what), element("dd", {}, value)));
  }
  return list;
}
