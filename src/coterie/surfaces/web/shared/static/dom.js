// DOM helpers.

export const one = (selector, within = document) => within.querySelector(selector);
export const all = (selector, within = document) => [...within.querySelectorAll(selector)];

// Adds a delegated event listener for a selector.
export function on(event, selector, handler) {
  document.addEventListener(event, (domEvent) => {
    const element = domEvent.target instanceof Element && domEvent.target.closest(selector);
    if (element) handler(domEvent, element);
  });
}

// HTML of our own server as nodes. Scripts in it never run; the server escapes user text.
export function nodes(html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  return template.content;
}

// A text for HTML that a script writes.
export const escaped = (text) => text.replace(/[&<>"']/g, (sign) => `&#${sign.charCodeAt(0)};`);

export const isMac = /Mac|iPhone|iPad/.test(navigator.platform);

export function typing(target) {
  return target instanceof Element && target.closest("input, textarea, select, [contenteditable]") !== null;
}
