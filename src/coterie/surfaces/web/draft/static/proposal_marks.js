// Marks in the editor: deletions are struck, insertions underlined, the text of threads dotted.
import { Decoration, EditorView, StateEffect, StateField, WidgetType } from "../vendor/codemirror.min.js";
import { t } from "../shared/messages.js";

const setMarks = StateEffect.define();
const choose = StateEffect.define();

class Insertion extends WidgetType {
  constructor(id, text, hue, chosen) {
    super();
    Object.assign(this, { id, text, hue, chosen });
  }
  eq(other) {
    return other.id === this.id && other.text === this.text && other.chosen === this.chosen;
  }
  toDOM() {
    const made = document.createElement("ins");
    made.className = `mark-inserted ${this.hue}${this.chosen ? " mark-chosen" : ""}`;
    made.dataset.card = this.id;
    made.dir = "auto";
    made.textContent = this.text;
    return made;
  }
  ignoreEvent() {
    return false;
  }
}

const none = { marks: [], anchors: [], chosen: "", drawn: Decoration.none };

const field = StateField.define({
  create: () => none,
  update(value, transaction) {
    let next = value;
    for (const effect of transaction.effects) {
      if (effect.is(setMarks)) next = { ...next, ...effect.value };
      if (effect.is(choose)) next = { ...next, chosen: effect.value };
    }
    if (next !== value) return { ...next, drawn: draw(next, transaction.newDoc.length) };
    return transaction.docChanged ? { ...value, drawn: value.drawn.map(transaction.changes) } : value;
  },
  provide: (it) => EditorView.decorations.from(it, (value) => value.drawn),
});

export const marks = [
  field,
  EditorView.domEventHandlers({
    click(event, view) {
      const of = event.target instanceof Element && event.target.closest("[data-card], [data-thread-anchor]");
      if (!of) return false;
      view.dom.dispatchEvent(new CustomEvent(of.dataset.card ? "card" : "about", { bubbles: true, detail: of.dataset.card ?? of.dataset.threadAnchor }));
      return false;
    },
  }),
];

// `mapping` maps a position of the marked version to the editor's text.
export function showMarks(view, data, mapping) {
  const found = data.marks.flatMap(({ id, start, pieces, hue, name }) => {
    let at = start;
    return pieces.flatMap(([mark, text]) => {
      const from = at;
      if (mark === "+") return [{ id, hue, name, from: mapping(from, -1), insert: text }];
      at += text.length;
      return mark === "-" ? [{ id, hue, name, from: mapping(from, 1), to: mapping(at, -1) }] : [];
    });
  });
  const anchors = data.anchors.map(({ thread, start, end }) => ({ thread, from: mapping(start, 1), to: mapping(end, -1) }));
  view.dispatch({ effects: setMarks.of({ marks: found, anchors }) });
}

export function chooseMark(view, id, show) {
  view.dispatch({ effects: choose.of(id) });
  if (!show) return;
  const first = view.state.field(field).marks.find((mark) => mark.id === id);
  if (first) view.dispatch({ effects: EditorView.scrollIntoView(first.from, { y: "center" }) });
}

export const threadAt = (view, position) => view.state.field(field).anchors.find(({ from, to }) => from <= position && position <= to)?.thread;

function draw({ marks: found, anchors, chosen }, length) {
  const drawn = [];
  for (const { thread, from, to } of anchors) {
    if (from < to && to <= length) drawn.push(Decoration.mark({ class: "mark-thread", attributes: { "data-thread-anchor": thread } }).range(from, to));
  }
  for (const { id, hue, from, to, insert, name } of found) {
    if (from > length || (to ?? 0) > length) continue;
    const picked = id === chosen;
    if (insert !== undefined) drawn.push(Decoration.widget({ widget: new Insertion(id, insert, hue, picked), side: 1 }).range(from));
    else if (from < to) drawn.push(Decoration.mark({ tagName: "del", class: `mark-deleted ${hue}${picked ? " mark-chosen" : ""}`, attributes: { "data-card": id, title: t("{name} proposes to delete this", { name }) } }).range(from, to));
  }
  return Decoration.set(drawn, true);
}
