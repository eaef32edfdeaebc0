// The packet strip: a prompt from left to right, a segment a packet.

const TIERS = {
  ram: ["RAM", "found in memory"],
  disk: ["disk", "read from the store"],
  prefill: ["prefilled", "made for this answer"],
};

/** Tokens of a packet that ran no forward pass for this answer. */
function savedTokens(packet, consistency) {
  return consistency === "recompute" || packet.tier === "prefill" ? 0 : packet.tokens;
}

function packetStrip(answer, consistency) {
  const packets = answer.documents.flatMap((document) =>
    document.packets.map((packet, index) => ({ ...packet, document, index, saved: savedTokens(packet, consistency) })),
  );
  const rest = _restOf(answer.usage, packets);
  const says = [...packets.map(_saysOf), _restSays(rest)];
  const marks = [...packets.map(_mark), _restMark(rest)];
  const readout = element("p", { className: "readout" });
  const summary = _summary(answer, packets);
  readout.textContent = summary;
  marks.forEach((mark, index) => mark.setAttribute("aria-label", says[index]));
  explore(marks, (index) => {
    readout.textContent = index === null ? summary : says[index];
    readout.classList.toggle("looked-at", index !== null);
  });
  return element(
    "section",
    { className: "strip-panel" },
    element("h4", {}, "Packets of the prompt"),
    element("div", { className: "strip", role: "group", "aria-label": "packets of the prompt, arrow keys move" }, ..._grouped(answer, packets, marks)),
    readout,
    _tierLegend(packets),
  );
}

/** Put the segments of a document side by side, with its id below. */
function _grouped(answer, packets, marks) {
  const groups = answer.documents.map((document) => {
    const own = marks.filter((_, index) => packets[index]?.document === document);
    const tokens = document.packets.reduce((sum, packet) => sum + packet.tokens, 0);
    return _group(own, document.id, tokens);
  });
  return [...groups, _group([marks.at(-1)], "question", Number(marks.at(-1).dataset.tokens))];
}

function _group(marks, name, tokens) {
  const group = element(
    "div",
    { className: "group" },
    element("div", { className: "segments" }, ...marks),
    element("span", { className: "name", title: name, "aria-hidden": "true" }, name),
  );
  group.style.flexGrow = tokens;
  return group;
}

function _mark(packet) {
  const tier = TIERS[packet.tier] ? packet.tier : "disk";
  const mark = element(
    "span",
    { className: `segment tier-${tier}${packet.fell_back ? " fell-back" : ""}`, role: "img" },
    element("b", { "aria-hidden": "true" }, count(packet.tokens)),
  );
  mark.style.flexGrow = packet.tokens;
  return mark;
}

/** What of the prompt is in no packet: preamble and question. */
function _restOf(usage, packets) {
  const inPackets = packets.reduce((sum, packet) => sum + packet.tokens, 0);
  const saved = packets.reduce((sum, packet) => sum + packet.saved, 0);
  return {
    tokens: Math.max(0, usage.prompt_tokens - inPackets),
    saved: Math.max(0, usage.cached_tokens - saved),
  };
}

function _restMark(rest) {
  const mark = element(
    "span",
    { className: "segment tier-none", role: "img" },
    element("b", { "aria-hidden": "true" }, count(rest.tokens)),
  );
  mark.dataset.tokens = rest.tokens;
  mark.style.flexGrow = rest.tokens;
  return mark;
}

const _restSays = (rest) =>
  `Preamble and question: ${counted(rest.tokens, "token")}, ${count(rest.saved)} not computed again`;

function _saysOf(packet) {
  const [, how] = TIERS[packet.tier] ?? [packet.tier, packet.tier];
  const which = packet.document.packets.length > 1 ? `, packet ${packet.index + 1} of ${packet.document.packets.length}` : "";
  const score = packet.document.score === null ? "" : `, score ${two(packet.document.score)}`;
  const fell = packet.fell_back ? ", it could not be used and was prefilled again" : "";
  return (
    `${packet.document.id}${which}: ${counted(packet.tokens, "token")}, ${how}${fell}, ` +
    `${count(packet.saved)} saved${score}`
  );
}

function _summary(answer, packets) {
  if (packets.length === 0) return "No document was read.";
  const { cached_tokens: cached, prompt_tokens: prompt } = answer.usage;
  return (
    `${counted(packets.length, "packet")} of ${counted(answer.documents.length, "document")}: ` +
    `${count(cached)} of ${count(prompt)} tokens were not computed again.`
  );
}

function _tierLegend(packets) {
  const legend = element("ul", { className: "legend", "aria-label": "tokens by tier" });
  for (const [tier, [name]] of Object.entries(TIERS)) {
    const tokens = packets.filter((packet) => packet.tier === tier).reduce((sum, packet) => sum + packet.tokens, 0);
    if (!tokens) continue;
    legend.append(
      element(
        "li",
        {},
        element("i", { className: `swatch tier-${tier}`, "aria-hidden": "true" }),
        element("span", {}, name),
        element("b", {}, count(tokens)),
      ),
    );
  }
  return legend;
}
