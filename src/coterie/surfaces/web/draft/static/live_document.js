// The document in the editor, shared with other browsers: local updates are sent with their version, remote ones are
// received and rebased by CodeMirror. If the server no longer knows the version, the text is merged by a save.
import { api, post, put } from "../shared/api.js";
import { t } from "../shared/messages.js";
import {
  ChangeSet, EditorState, EditorView, Transaction, collab, defaultKeymap, getSyncedVersion, highlightSpecialChars, history, historyKeymap, keymap,
  markdown, receiveUpdates, sendableUpdates,
} from "../vendor/codemirror.min.js";

const RETRY_MS = [300, 1000, 3000, 8000];
// CodeMirror's own style is in no cascade layer and wins over the page's, so these rules are set as a theme.
const PROSE = EditorView.theme({
  "&.cm-focused": { outline: "none" },
  ".cm-scroller": { fontFamily: "inherit", lineHeight: "inherit", overflow: "visible" },
  ".cm-content": { padding: "0", caretColor: "var(--accent)" },
  ".cm-line": { padding: "0" },
});
// Invisible and direction characters are shown by their code point, so that the text reads as it is written.
const INVISIBLE = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060\u2066-\u2069\ufeff\ufff9-\ufffc]/g;

export class LiveDocument {
  constructor(parent, { workspace, path, branch, nonce, role, extensions, changed, status, clashed }) {
    Object.assign(this, { workspace, path, branch, changed, status, clashed });
    this.readOnly = role === "reader" || role === "commenter";
    this.parent = parent;
    this.nonce = nonce;
    this.extensions = extensions;
    this.client = crypto.randomUUID();
    this.address = `/draft/workspaces/${workspace}/live/${path.split("/").map(encodeURIComponent).join("/")}`;
    this.document = this.address.replace("/live/", "/documents/");
    this.failures = 0;
  }

  async open() {
    const data = await api("GET", `${this.address}?branch=${encodeURIComponent(this.branch)}`);
    this.#begin(data);
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
        EditorView.contentAttributes.of({ "aria-label": t("The text"), spellcheck: "true", autocapitalize: "sentences" }),
        highlightSpecialChars({ specialChars: INVISIBLE, render: unseen }),
        history(),
        keymap.of([...defaultKeymap, ...historyKeymap]),
        markdown(),
        PROSE,
        EditorState.readOnly.of(this.readOnly),
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
      this.parent.replaceChildren();
      this.view = new EditorView({ state, parent: this.parent });
    }
    this.#tell();
  }

  get text() {
    return this.view.state.sliceDoc();
  }

  get pending() {
    return sendableUpdates(this.view.state).length > 0;
  }

  // One request at a time; later updates go with the next one.
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
        if (error.status === 410) await this.#reconnect();
        else if (error.status && error.status < 500) throw error;
        else {
          this.#tell("offline");
          await new Promise((done) => setTimeout(done, RETRY_MS[Math.min(this.failures++, RETRY_MS.length - 1)]));
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
    const data = await post(this.address, { branch: this.branch, epoch: this.epoch, version, updates, thread: this.thread || null });
    const received = data.updates.map(({ client, changes }) => ({ clientID: client, changes: ChangeSet.fromJSON(changes) }));
    this.log.push(...received.map(({ changes }) => changes));
    if (received.length) this.view.dispatch(receiveUpdates(this.view.state, received));
    Object.assign(this, { base: data.base, saved: data.saved });
    if (!data.taken || this.pending) this.again = true;
  }

  // The server restarted, or too many updates were missed: merge the local text by a save, then load the document again.
  async #reconnect() {
    const mine = this.text;
    const at = this.view.state.selection.main.head;
    try {
      await put(this.document, { text: mine, base: this.base, branch: this.branch });
    } catch (error) {
      if (error.status !== 409) throw error;
      return this.clashed(error, mine);
    }
    await this.reload(at);
  }

  async reload(at = 0) {
    this.#begin(await api("GET", `${this.address}?branch=${encodeURIComponent(this.branch)}`));
    this.view.dispatch({ selection: { anchor: Math.min(at, this.view.state.doc.length) } });
  }

  // Maps positions of a version of the document to the editor's text; null if the editor does not have that version (yet).
  mapping(epoch, version) {
    if (epoch !== this.epoch || version < this.first || version > this.first + this.log.length) return null;
    const since = this.log.slice(version - this.first);
    const mine = sendableUpdates(this.view.state).map(({ changes }) => changes);
    return (position, side = 1) => [...since, ...mine].reduce((at, changes) => changes.mapPos(at, side), position);
  }

  // Sends pending updates, then returns the selection in code points, as the server counts.
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
  span.title = t("Invisible character: {name}", { name });
  return span;
}
