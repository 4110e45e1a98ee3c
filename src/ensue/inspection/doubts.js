// Doubtful labels: the reader accepts or rejects each suggestion, and saves the file with the accepted ones.
drawers.doubts = (part, numbers, article) => {
  const state = article.querySelector(".state");
  const chosen = value => new Set([...part.querySelectorAll(`input[value=${value}]:checked`)].map(input => input.closest("[data-row]").dataset.row));
  const repaired = () => {
    const accepted = chosen("accept");
    const edited = numbers.edits.map(([place, old, suggested], number) => numbers.parts[number] + (accepted.has(String(place)) ? suggested : old));
    return edited.join("") + numbers.parts[numbers.parts.length - 1];
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
