// The text that several people type in: what is typed here goes out by number, what others typed comes in, and
// CodeMirror puts one after the other. Nothing typed is lost: if the server forgot the sheet, the text is merged by save.
import { api, post, put } from "./api.js";
import {
  ChangeSet, EditorState, EditorView, Transaction, collab, defaultKeymap, getSyncedVersion, highlightSpecialChars, history, historyKeymap, keymap,
  markdown, receiveUpdates, sendableUpdates,
} from "../vendor/codemirror.min.js";

const AGAIN_MS = [300, 1000, 3000, 8000];
// Signs that are not seen but act: they are shown by their number, so that nothing reads otherwise than it is written.
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060\u2066-\u2069\ufeff\ufff9-\ufffc]/g;

export class Sheet {
  constructor(place, { workspace, path, branch, nonce, extensions, changed, status, clashed }) {
    Object.assign(this, { workspace, path, branch, changed, status, clashed });
    this.place = place;
    this.nonce = nonce;
    this.extensions = extensions;
    this.client = crypto.randomUUID();
    this.address = `/draft/workspaces/${workspace}/sheet/${path.split("/").map(encodeURIComponent).join("/")}`;
    this.document = this.address.replace("/sheet/", "/documents/");
    this.failures = 0;
  }

  async open() {
    const told = await api("GET", `${this.address}?branch=${encodeURIComponent(this.branch)}`);
    this.#begin(told);
    return this.view;
  }

  #begin({ epoch, version, text, base, saved }) {
    Object.assign(this, { epoch, base, saved, first: version, log: [] });
    const state = EditorState.create({
      doc: text,
      extensions: [
        EditorState.lineSeparator.of("\n"),
        EditorView.cspNonce.of(this.nonce),
        EditorView.lineWrapping,
        EditorView.perLineTextDirection.of(true),
        EditorView.contentAttributes.of({ "aria-label": "The text", spellcheck: "true", autocapitalize: "sentences" }),
        highlightSpecialChars({ specialChars: UNSEEN, render: unseen }),
        history(),
        keymap.of([...defaultKeymap, ...historyKeymap]),
        markdown(),
        collab({ startVersion: version, clientID: this.client }),
        EditorView.updateListener.of((update) => {
          if (!update.docChanged) return;
          this.changed?.(update);
          if (!update.transactions.every((one) => one.annotation(Transaction.remote))) this.sync();
        }),
        this.extensions,
      ],
    });
    if (this.view) this.view.setState(state);
    else {
      this.place.replaceChildren();
      this.view = new EditorView({ state, parent: this.place });
    }
    this.#tell();
  }

  get text() {
    return this.view.state.sliceDoc();
  }

  get pending() {
    return sendableUpdates(this.view.state).length > 0;
  }

  // One request at a time; whatever is typed meanwhile goes with the next.
  sync() {
    this.again = true;
    this.#tell();
    return (this.running ??= this.#run().finally(() => (this.running = null)));
  }

  async #run() {
    while (this.again) {
      this.again = false;
      try {
        await this.#exchange();
        this.failures = 0;
      } catch (error) {
        if (error.status === 410) await this.#startOver();
        else if (error.status && error.status < 500) throw error;
        else {
          this.#tell("offline");
          await new Promise((done) => setTimeout(done, AGAIN_MS[Math.min(this.failures++, AGAIN_MS.length - 1)]));
          this.again = true;
        }
      }
    }
    this.#tell();
  }

  async #exchange() {
    const state = this.view.state;
    const version = getSyncedVersion(state);
    const updates = sendableUpdates(state).map(({ changes }) => ({ client: this.client, changes: changes.toJSON() }));
    const told = await post(this.address, { branch: this.branch, epoch: this.epoch, version, updates, thread: this.thread || null });
    const came = told.updates.map(({ client, changes }) => ({ clientID: client, changes: ChangeSet.fromJSON(changes) }));
    this.log.push(...came.map(({ changes }) => changes));
    if (came.length) this.view.dispatch(receiveUpdates(this.view.state, came));
    Object.assign(this, { base: told.base, saved: told.saved });
    if (!told.taken || this.pending) this.again = true;
  }

  // The server was started again, or this page slept too long: what is here is merged in as a save, then all begins anew.
  async #startOver() {
    const mine = this.text;
    const at = this.view.state.selection.main.head;
    try {
      await put(this.document, { text: mine, base: this.base, branch: this.branch });
    } catch (error) {
      if (error.status !== 409) throw error;
      return this.clashed(error, mine);
    }
    await this.takeTheirs(at);
  }

  async takeTheirs(at = 0) {
    this.#begin(await api("GET", `${this.address}?branch=${encodeURIComponent(this.branch)}`));
    this.view.dispatch({ selection: { anchor: Math.min(at, this.view.state.doc.length) } });
  }

  // Places of the text at a number as places of the text before one's eyes; null if that number is not here (yet).
  mapping(epoch, version) {
    if (epoch !== this.epoch || version < this.first || version > this.first + this.log.length) return null;
    const since = this.log.slice(version - this.first);
    const mine = sendableUpdates(this.view.state).map(({ changes }) => changes);
    return (place, side = 1) => [...since, ...mine].reduce((at, changes) => changes.mapPos(at, side), place);
  }

  // Everything typed is at the server, and where a selection begins and ends as it counts.
  async selection({ from, to }) {
    await this.sync();
    const text = this.text;
    const length = (end) => [...text.slice(0, end)].length;
    return { start: length(from), end: length(to), exact: text.slice(from, to) };
  }

  leave() {
    if (!this.pending) return;
    const state = this.view.state;
    const updates = sendableUpdates(state).map(({ changes }) => ({ client: this.client, changes: changes.toJSON() }));
    const body = JSON.stringify({ branch: this.branch, epoch: this.epoch, version: getSyncedVersion(state), updates });
    fetch(this.address, { method: "POST", body, keepalive: true, headers: { "Content-Type": "application/json" } });
  }

  #tell(state) {
    this.status?.(state ?? (this.pending ? "sending" : this.saved ? "saved" : "typed"));
  }
}

function unseen(code) {
  const span = document.createElement("span");
  const name = `U+${code.toString(16).toUpperCase().padStart(4, "0")}`;
  span.className = "cm-specialChar";
  span.textContent = `⟨${name}⟩`;
  span.title = `A character that is not seen: ${name}`;
  return span;
}
