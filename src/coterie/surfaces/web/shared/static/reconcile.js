// Replaces a list with new HTML and keeps unchanged children, with their focus and forms.
import { nodes } from "./dom.js";

export function reconcile(place, html) {
  const fresh = [...nodes(html).children];
  const there = new Map([...place.children].filter((child) => child.id).map((child) => [child.id, child]));
  const kept = fresh.map((child) => {
    const old = there.get(child.id);
    if (!old) return child;
    if (same(old, child) || old.querySelector("form")) return old;
    if (old.tagName === "DETAILS" && child.tagName === "DETAILS") child.open = old.open;
    return child;
  });
  const focused = place.contains(document.activeElement) ? document.activeElement.closest("[id]")?.id : null;
  // Kept children are not moved: moving would lose the cursor in a form.
  const staying = new Set(kept);
  for (const child of [...place.childNodes]) if (!staying.has(child)) child.remove();
  kept.forEach((child, at) => place.children[at] !== child && place.insertBefore(child, place.children[at] ?? null));
  if (focused && !place.contains(document.activeElement)) document.getElementById(focused)?.focus({ preventScroll: true });
}

// `aria-current` and formatted times are set by the page, so they are ignored in the comparison.
function same(old, child) {
  const clone = old.cloneNode(true);
  clone.removeAttribute("aria-current");
  if (clone.tagName === "DETAILS") clone.open = child.open;
  for (const inner of clone.querySelectorAll("[aria-current]")) inner.removeAttribute("aria-current");
  for (const time of clone.querySelectorAll("time")) {
    time.textContent = "";
    time.removeAttribute("title");
  }
  return clone.isEqualNode(child);
}
