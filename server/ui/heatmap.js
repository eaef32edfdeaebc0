// How far K and V of each layer are compressed: raw bits over stored bits.

const SIDES = { k: "K", v: "V", k_base: "K, base", v_base: "V, base" };

function heatMap(layers, rawBits) {
  const sides = Object.keys(SIDES).filter((side) => layers[0][side] !== null);
  const scales = Object.fromEntries(sides.map((side) => [side, _scaleOf(layers, sides, side, rawBits)]));
  const cells = [];
  const rows = sides.map((side) =>
    element(
      "tr",
      {},
      element("th", { scope: "row" }, SIDES[side]),
      ...layers.map((layer) => {
        const cell = _heatCell(rawBits / layer[side], scales[side]);
        cell.dataset.says = `Layer ${layer.layer}, ${SIDES[side]}: ${times(rawBits / layer[side])}, ${two(layer[side])} bits a scalar`;
        cell.setAttribute("aria-label", cell.dataset.says);
        cells.push(cell);
        return cell;
      }),
    ),
  );
  const heads = layers.map(({ layer }) => element("th", { scope: "col" }, layer % 5 ? "" : String(layer)));
  const summary = _heatSummary(sides, scales);
  const readout = element("p", { className: "readout" }, summary);
  explore(
    cells,
    (index) => {
      readout.textContent = index === null ? summary : cells[index].dataset.says;
      readout.classList.toggle("looked-at", index !== null);
    },
    layers.length,
  );
  return element(
    "div",
    {},
    element("table", { className: sides.includes("k_base") ? "heat with-bases" : "heat" }, element("caption", { className: "unseen" }, "Ratio of raw to stored bits by layer; arrow keys move"), element("thead", {}, element("tr", {}, element("td"), ...heads)), element("tbody", {}, ...rows)),
    readout,
  );
}

function _heatCell(ratio, [low, high]) {
  const cell = element("td");
  const share = high > low ? (ratio - low) / (high - low) : 0.5;
  cell.style.setProperty("--heat", `${Math.round(100 * share)}%`);
  return cell;
}

/** Least and most of K and V together; bases have a scale of their own. */
function _scaleOf(layers, sides, side, rawBits) {
  const alike = sides.filter((other) => other.endsWith("_base") === side.endsWith("_base"));
  const ratios = layers.flatMap((layer) => alike.map((other) => rawBits / layer[other]));
  return [Math.min(...ratios), Math.max(...ratios)];
}

function _heatSummary(sides, scales) {
  const told = [`A column a layer, ${times(scales.k[0])} (faint) to ${times(scales.k[1])}`];
  if (sides.includes("k_base")) told.push(`bases ${times(scales.k_base[0])} to ${times(scales.k_base[1])}`);
  return `${told.join("; ")}.`;
}
