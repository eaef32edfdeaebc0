// Speaks to the server that this page came from, with a key where one is asked for.

const KEY = "kvpacket-store.key";

/** What went wrong, as the server tells it (RFC 9457), or as this page sees it. */
class Problem extends Error {
  constructor({ title, detail, status }) {
    super(detail || title || "Something went wrong");
    this.title = title || "Something went wrong";
    this.detail = detail || "";
    this.status = status ?? null;
  }
}

const _unreachable = () =>
  new Problem({
    title: "The server cannot be reached",
    detail: "It may have been stopped, or the network is down. Try again.",
  });

async function _problemOf(response) {
  const said = await response.json().catch(() => ({}));
  return new Problem({ title: said.title ?? response.statusText, detail: said.detail, status: response.status });
}

/** Send a request; ask for the key, once, where the server wants one. Gives the response, or throws. */
async function request(path, { body, signal } = {}) {
  for (let attempt = 0; ; attempt += 1) {
    const key = sessionStorage.getItem(KEY);
    const headers = body ? { "Content-Type": "application/json" } : {};
    if (key) headers.Authorization = `Bearer ${key}`;
    let response;
    try {
      response = await fetch(path, {
        method: body ? "POST" : "GET",
        body: body && JSON.stringify(body),
        credentials: "omit", // the key alone says who asks
        cache: "no-store",
        headers,
        signal,
      });
    } catch (error) {
      throw error.name === "AbortError" ? error : _unreachable();
    }
    if (response.ok) return response;
    const problem = await _problemOf(response);
    if (response.status !== 401 || attempt || !(await _askedForKey(problem, key))) throw problem;
  }
}

/** Yield a stream's [event, data] pairs as they come. */
async function* eventsOf(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      held += value.replaceAll("\r", "");
      const blocks = held.split("\n\n");
      held = blocks.pop();
      for (const block of blocks) {
        const event = _eventOf(block);
        if (event) yield event;
      }
    }
  } catch (error) {
    throw error.name === "AbortError" ? error : _unreachable();
  } finally {
    reader.cancel().catch(() => {}); // whoever stops listening closes the connection
  }
}

function _eventOf(block) {
  let name = "message";
  const data = [];
  for (const line of block.split("\n")) {
    if (line.startsWith("event:")) name = line.slice(6).trim();
    if (line.startsWith("data:")) data.push(line.slice(5).trimStart());
  }
  return data.length && data[0] !== "[DONE]" ? [name, JSON.parse(data.join("\n"))] : null;
}

let _asking = null;

/** Ask for a key in the dialog; whether there is another one now. All who wait share one dialog. */
function _askedForKey(problem, refused) {
  const now = sessionStorage.getItem(KEY);
  if (now && now !== refused) return Promise.resolve(true); // somebody else was asked meanwhile
  _asking ??= _askForKey(problem).finally(() => {
    _asking = null;
    showWhetherKeyIsKept();
  });
  return _asking;
}

function _askForKey(problem) {
  const dialog = byId("key-dialog");
  byId("key-detail").textContent = problem.detail;
  byId("key").value = "";
  dialog.showModal();
  return new Promise((resolve) => {
    let given = false;
    byId("key-form").onsubmit = (event) => {
      event.preventDefault();
      sessionStorage.setItem(KEY, byId("key").value.trim());
      given = true;
      dialog.close();
    };
    byId("key-cancel").onclick = () => dialog.close();
    dialog.onclose = () => {
      byId("key").value = "";
      resolve(given);
    };
  });
}

function showWhetherKeyIsKept() {
  byId("forget").hidden = sessionStorage.getItem(KEY) === null;
}

byId("forget").addEventListener("click", () => {
  sessionStorage.removeItem(KEY);
  showWhetherKeyIsKept();
});
showWhetherKeyIsKept();
