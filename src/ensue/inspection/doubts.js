// Doubts of labels: a person accepts or keeps each, and saves the file with those that are accepted.
drawers.doubts = (part, numbers, article) => {
  const state = article.querySelector(".state");
  const chosen = value => new Set([...part.querySelectorAll(`input[value=${value}]:checked`)].map(input => input.closest("[data-row]").dataset.row));
  const repaired = () => {
    const accepted = chosen("accept");
    const found = numbers.edits.map(([place, old, made], number) => numbers.parts[number] + (accepted.has(String(place)) ? made : old));
    return found.join("") + numbers.parts[numbers.parts.length - 1];
  };
  const count = () => { state.textContent = `${chosen("accept").size} accepted, ${chosen("keep").size} kept`; };
  part.addEventListener("change", count);
  article.querySelector(".save").addEventListener("click", () => {
    const link = element("a", "", "");
    link.href = URL.createObjectURL(new Blob([repaired()], { type: "text/plain" }));
    link.download = numbers.name;
    link.click();
    URL.revokeObjectURL(link.href);
  });
  count();
};
