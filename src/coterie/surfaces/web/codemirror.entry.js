// What the page uses of CodeMirror, as one file. The recipe is in vendor.toml.
import { Language, LanguageSupport, defineLanguageFacet, syntaxHighlighting } from "@codemirror/language";
import { GFM, parser } from "@lezer/markdown";
import { tagHighlighter, tags } from "@lezer/highlight";

export { collab, getSyncedVersion, receiveUpdates, sendableUpdates } from "@codemirror/collab";
export { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
export { ChangeSet, EditorSelection, EditorState, StateEffect, StateField, Transaction } from "@codemirror/state";
export { Decoration, EditorView, WidgetType, highlightSpecialChars, keymap, placeholder } from "@codemirror/view";

// The whole of @codemirror/lang-markdown would bring HTML, CSS and JavaScript along.
export function markdown() {
  const data = defineLanguageFacet({ commentTokens: { block: { open: "<!--", close: "-->" } } });
  return new LanguageSupport(new Language(data, parser.configure(GFM), [], "markdown"), [
    syntaxHighlighting(
      tagHighlighter([
        { tag: tags.heading1, class: "md-h1" },
        { tag: tags.heading2, class: "md-h2" },
        { tag: [tags.heading3, tags.heading4, tags.heading5, tags.heading6], class: "md-h3" },
        { tag: tags.strong, class: "md-strong" },
        { tag: tags.emphasis, class: "md-em" },
        { tag: tags.strikethrough, class: "md-gone" },
        { tag: tags.monospace, class: "md-code" },
        { tag: tags.quote, class: "md-quote" },
        { tag: [tags.link, tags.url], class: "md-link" },
        { tag: [tags.processingInstruction, tags.contentSeparator, tags.labelName], class: "md-sign" },
      ]),
    ),
  ]);
}
