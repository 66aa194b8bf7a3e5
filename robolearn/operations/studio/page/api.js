// Asks the server. What it says of an error is thrown as an Error whose text can be shown as it is.

const BUSY = 503, BUSY_PAUSE_MS = 1000, BUSY_TRIES = 60;
const TYPES = {f4: Float32Array, i4: Int32Array, u1: Uint8Array};

function unpacked(key, value) {
  if (value === null || typeof value !== "object" || !("shape" in value && "type" in value && "data" in value)) return value;
  const text = atob(value.data), bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return {shape: value.shape, data: new TYPES[value.type](bytes.buffer)};
}

async function answered(response) {
  const text = await response.text();
  if (response.ok) return JSON.parse(text, unpacked);
  let said = text.trim() || response.statusText;
  try { said = JSON.parse(text).error; } catch { /* It is a sentence. */ }
  const error = new Error(said);
  error.status = response.status;
  throw error;
}

async function ask(path, options) {
  let response;
  try { response = await fetch(path, {credentials: "same-origin", ...options}); }
  catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The server does not answer. Is 'robolearn studio' still running?");
  }
  return answered(response);
}

let asker = 0;

/** Another view is shown: nobody asks on for the one before. */
export function moveOn() { asker++; }

/**
 * A document of the API; packed arrays become {shape, data: typed array}. While the server computes
 * other things it is asked again, as long as the view that asks is shown.
 */
export async function getJson(path, {signal} = {}) {
  const mine = asker;
  for (let tries = 1; ; tries++) {
    try { return await ask(path, {signal}); }
    catch (error) { if (error.status !== BUSY || tries === BUSY_TRIES || mine !== asker) throw error; }
    await new Promise((wake) => setTimeout(wake, BUSY_PAUSE_MS));
  }
}

/** Post a document. */
export function postJson(path, document_) {
  return ask(path, {method: "POST", headers: {"Content-Type": "application/json"}, body: JSON.stringify(document_)});
}

/** The address of a thing's document: `of(id, "episodes", 3)`. */
export function of(id, ...parts) { return ["/api/things", id, ...parts].join("/"); }

/** Calls `changed({version, ids, all})` after changes on disk; nothing is held while nobody looks. */
export function listen(changed, line) {
  let source = null, version = null;
  function open() {
    if (source || document.hidden) return;
    source = new EventSource(version === null ? "/api/changes" : `/api/changes?since=${version}`);
    source.onmessage = (event) => {
      const news = JSON.parse(event.data);
      version = news.version;
      line(true);
      if (news.ids.length || news.all) changed(news);
    };
    source.onerror = () => {
      line(false);
      if (source.readyState === EventSource.CLOSED) { source = null; setTimeout(open, 2000); }
    };
  }
  // A browser has six lines to a server: a page that nobody sees keeps none.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden && source) { source.close(); source = null; }
    else open();
  });
  open();
}
