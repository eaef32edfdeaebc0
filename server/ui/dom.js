// Elements and figures. Whatever comes from elsewhere becomes text, never markup.

/** Make an element: `on…` properties are listeners, names with a dash are attributes. */
function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name.includes("-") || name === "role") made.setAttribute(name, value);
    else made[name] = value;
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

const byId = (id) => document.getElementById(id);

const _whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const _two = new Intl.NumberFormat("en", { maximumFractionDigits: 2, minimumFractionDigits: 2 });

const count = (value) => _whole.format(value);
const two = (value) => _two.format(value);
const times = (value) => `${two(value)}\u00a0×`;
const percent = (share) => `${(100 * share).toFixed(share === 1 || share === 0 ? 0 : 1)}\u00a0%`;

/** "3 packets", "1 packet". */
const counted = (value, noun) => `${count(value)} ${noun}${value === 1 ? "" : "s"}`;

function duration(ms) {
  if (ms >= 10_000) return `${(ms / 1000).toFixed(1)}\u00a0s`;
  if (ms >= 1000) return `${(ms / 1000).toFixed(2)}\u00a0s`;
  return ms >= 10 ? `${count(ms)}\u00a0ms` : `${ms.toFixed(1)}\u00a0ms`;
}

function bytes(value) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${unit ? value.toFixed(value < 100 ? 1 : 0) : count(value)}\u00a0${units[unit]}`;
}

/**
 * Let one of many marks be reached by Tab, and the others by arrow keys; tell which is looked at,
 * by pointer or focus, and null when none is. `columns`: marks in a row, where there are rows.
 */
function explore(marks, onLook, columns = marks.length) {
  const moves = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns };
  marks.forEach((mark, index) => {
    mark.tabIndex = index ? -1 : 0;
    mark.addEventListener("pointerenter", () => onLook(index));
    mark.addEventListener("pointerleave", () => onLook(null));
    mark.addEventListener("focus", () => onLook(index));
    mark.addEventListener("blur", () => onLook(null));
    mark.addEventListener("keydown", (event) => {
      const next = marks[index + (moves[event.key] ?? NaN)];
      if (!next) return;
      event.preventDefault();
      for (const one of marks) one.tabIndex = -1;
      next.tabIndex = 0;
      next.focus();
    });
  });
}
