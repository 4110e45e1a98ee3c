// What the theme leaves out for people who use a keyboard or a screen reader.
document.addEventListener("DOMContentLoaded", () => {
  for (const caption of document.querySelectorAll("p.caption[role=heading]")) caption.setAttribute("aria-level", "2");
  const names = [["aside.sidebar-drawer", "All pages"], ["aside.toc-drawer", "This page"]];
  for (const [selector, name] of names) document.querySelector(selector)?.setAttribute("aria-label", name);
  for (const head of document.querySelectorAll("th")) {
    if (!head.textContent.trim()) head.replaceWith(document.createElement("td"));
  }
  const search = document.querySelector("#search-results");
  if (search && !document.querySelector("h1")) search.insertAdjacentHTML("beforebegin", "<h1>Search</h1>");
  // what scrolls sideways is reached by the tab key, and only while it scrolls
  const focus = () => {
    for (const box of document.querySelectorAll("article pre, article .table-wrapper, article .formula, article p:has(> img)")) {
      if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
      else box.removeAttribute("tabindex");
    }
  };
  addEventListener("resize", focus);
  document.addEventListener("load", focus, true); // a picture has no width before it is there
  focus();
});
