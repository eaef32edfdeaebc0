// The store's figures: GET /stats, which says what `kvps stats` and GET /metrics say.

const REFRESH_MS = 10_000;
const REFRESH_LOADING_MS = 2_000;

// What this page reads of the metrics.
const METRICS = {
  running: "kvpacket_requests_running",
  waiting: "kvpacket_requests_waiting",
  answered: 'kvpacket_requests_total{outcome="answered"}',
  damaged: 'kvpacket_requests_total{outcome="damaged"}',
  fallbacks: "kvpacket_fallbacks_total",
  prompt: "kvpacket_prompt_tokens_total",
  cached: "kvpacket_cached_tokens_total",
  completion: "kvpacket_completion_tokens_total",
  accepted: "kvpacket_accepted_draft_tokens_total",
  rejected: "kvpacket_rejected_draft_tokens_total",
  firstSum: "kvpacket_first_token_seconds_sum",
  firstCount: "kvpacket_first_token_seconds_count",
  hits: "kvpacket_memory_hits_total",
  misses: "kvpacket_memory_misses_total",
  heldBytes: "kvpacket_memory_bytes",
  maxBytes: "kvpacket_memory_max_bytes",
  bit: 'kvpacket_exactness{promise="bit"}',
  guarded: 'kvpacket_exactness{promise="guarded"}',
};

function metricsOf(stats) {
  return Object.fromEntries(Object.entries(METRICS).map(([name, metric]) => [name, stats.metrics[metric] ?? 0]));
}

function showFigures(stats) {
  const metrics = metricsOf(stats);
  const { store } = stats;
  byId("model").textContent = [store.model, store.adapter && `adapter ${store.adapter}`, `codec ${store.codec}`].filter(Boolean).join(" · ");
  _showStatus(stats, metrics);
  _showNamespaces(stats.namespaces);
  const figures = byId("figures");
  if (figures.dataset.shown && figures.matches(":hover, :focus-within")) return; // somebody is at it
  figures.dataset.shown = "yes";
  figures.replaceChildren(
    _counts(stats),
    stats.packets === 0 ? _emptyNote() : _sizes(stats),
    _layers(stats),
    _memory(metrics),
    _traffic(metrics),
    _trust(stats, metrics),
    element("p", { className: "quiet-text" }, `kvpacket-store ${stats.version}`),
  );
}

function _showStatus(stats, { running, waiting }) {
  const [state, text] = stats.not_ready.length
    ? ["loading", stats.not_ready[0]]
    : running + waiting
      ? ["busy", `${count(running)} running, ${count(waiting)} waiting`]
      : ["ready", "ready"];
  _setStatus(state, text);
}

function _setStatus(state, text) {
  byId("status").className = `status ${state}`;
  if (byId("status-text").textContent !== text) byId("status-text").textContent = text;
}

/** Let people choose where there is a choice. */
function _showNamespaces(namespaces) {
  const select = form.elements.namespace;
  byId("namespace-field").hidden = namespaces.length < 2 && (namespaces[0] ?? "default") === "default";
  const known = [...select.options].map((option) => option.value);
  for (const name of namespaces) if (!known.includes(name)) select.add(new Option(name, name));
}

function _counts(stats) {
  const tiles = [["documents", stats.documents], ["packets", stats.packets], ["tokens", stats.tokens]];
  return element("dl", { className: "tiles" }, ...tiles.map(([what, value]) => element("div", {}, element("dt", {}, what), element("dd", {}, count(value)))));
}

const _emptyNote = () =>
  element("p", { className: "note" }, "No packet is stored yet. Take in documents with ", element("code", {}, "kvps ingest"), " or POST /ingest.");

function _block(title, ...children) {
  return element("section", { className: "block" }, element("h3", {}, title), ...children);
}

function _sizes(stats) {
  const { raw_bytes: raw, live_bytes: live, file_bytes: file, pack_bytes: packs } = stats;
  return _block(
    "Size",
    element("p", { className: "big" }, times(stats.ratio ?? 1), element("small", {}, " smaller, every bit kept")),
    shareBar(live / raw, "tier-disk"),
    factList(
      [
        ["K and V, raw", bytes(raw)],
        ["stored", bytes(live)],
        file !== null && ["file", bytes(file)],
        packs ? ["codec packs", bytes(packs)] : null,
        stats.bits_per_scalar.all !== null && ["bits a scalar", `${two(stats.bits_per_scalar.all)} of ${stats.store.raw_bits_per_scalar}`],
      ].filter(Boolean),
    ),
  );
}

function _layers(stats) {
  if (!stats.layers.length) return null;
  return _block("Ratio by layer", heatMap(stats.layers, stats.store.raw_bits_per_scalar));
}

function _memory({ hits, misses, heldBytes, maxBytes }) {
  const asked = hits + misses;
  return _block(
    "RAM tier",
    asked
      ? element("p", { className: "big" }, percent(hits / asked), element("small", {}, " found in memory"))
      : element("p", { className: "note" }, "No packet was asked for yet."),
    shareBar(asked ? hits / asked : 0, "tier-ram"),
    factList([["hits, misses", `${count(hits)}, ${count(misses)}`], ["held", `${bytes(heldBytes)} of ${bytes(maxBytes)}`]]),
  );
}

function _traffic(metrics) {
  const drafted = metrics.accepted + metrics.rejected;
  return _block(
    "Since the server started",
    factList(
      [
        ["answers", count(metrics.answered)],
        ["running, waiting", `${count(metrics.running)}, ${count(metrics.waiting)}`],
        metrics.firstCount > 0 && ["first token, mean", duration((1000 * metrics.firstSum) / metrics.firstCount)],
        metrics.prompt > 0 && ["prompt tokens reused", `${count(metrics.cached)} of ${count(metrics.prompt)}`],
        ["answer tokens", count(metrics.completion)],
        drafted > 0 && ["drafts accepted", `${count(metrics.accepted)} of ${count(drafted)}`],
      ].filter(Boolean),
    ),
  );
}

/** What speaks for the answers: packets that hold, answers that were compared. */
function _trust(stats, metrics) {
  const facts = [
    ["packets prefilled again", count(metrics.fallbacks), metrics.fallbacks ? "worse" : "good"],
    ["requests that met damage", count(metrics.damaged), metrics.damaged ? "worse" : "good"],
  ];
  if (stats.evicted_packets) facts.push(["packets that gave way", count(stats.evicted_packets)]);
  if (METRICS.bit in stats.metrics) {
    facts.push(["drafts are exact here: bit", metrics.bit ? "yes" : "no", metrics.bit ? "good" : "worse"]);
    facts.push(["drafts are exact here: guarded", metrics.guarded ? "yes" : "no", metrics.guarded ? "good" : "worse"]);
  }
  const { audit, quality } = stats;
  facts.push(
    audit
      ? [`audit of ${counted(audit.requests, "answer")}`, `${percent(audit.agreement)} agree, KL ${audit.kl_nats.toFixed(3)}`]
      : ["audit", "no answer compared yet"],
  );
  facts.push(["model and adapter compared", quality.verified ? "yes" : "no", quality.verified ? "good" : "worse"]);
  return _block(
    "Integrity and quality",
    factList(facts),
    quality.reason === null ? null : element("p", { className: "note" }, `Unverified: ${quality.reason}.`),
    element("p", { className: "note" }, element("code", {}, "kvps verify --deep"), " checks every packet."),
  );
}

let _timer = null;
let _reading = false;
let _outdated = false;

/** Read the figures and show them; again after a while, as long as the page is seen. */
async function refreshFigures() {
  clearTimeout(_timer);
  _outdated = _reading;
  if (_reading) return;
  _reading = true;
  let after = REFRESH_MS;
  try {
    const stats = await (await request("/stats")).json();
    showFigures(stats);
    if (stats.not_ready.length) after = REFRESH_LOADING_MS;
  } catch (error) {
    _setStatus("failed", error.title ?? "this page made a mistake");
    if (!byId("figures").dataset.shown) byId("figures").replaceChildren(problemNote(error));
    if (error.status === 401) after = null; // ask again when the reader does
  }
  _reading = false;
  if (_outdated) refreshFigures(); // something was answered meanwhile
  else if (after !== null && !document.hidden) _timer = setTimeout(refreshFigures, after);
}

byId("refresh").addEventListener("click", refreshFigures);
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) refreshFigures();
});
refreshFigures();
