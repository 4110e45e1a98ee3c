
const NUMBER = 4;  // bytes of a number

/** Returns the option `atLeast` of a call, checked. */
function checkedAtLeast({ atLeast = 0, ...others } = {}) {
  const [unknown] = Object.keys(others);
  if (unknown) throw new TypeError(`no option "${unknown}"`);
  if (!(typeof atLeast === "number" && atLeast >= 0 && atLeast <= 1)) throw new RangeError(`atLeast = ${atLeast} is not a number from 0 to 1`);
  return atLeast;
}

/** Returns the size in bytes of the outputs of `count` texts or series. */
function outputSize(count, labels) {
  return count * (2 + 2 * labels.length) * NUMBER;
}

/** Reads the outputs at an address: labels, probabilities, and the number of words or frames under the key `parts`. */
function choicesAt(memory, place, count, labels, parts) {
  const size = 2 + 2 * labels.length, { buffer } = memory.functions.memory, found = [];
  const integers = new Int32Array(buffer, place, count * size), reals = new Float32Array(buffer, place, count * size);
  for (let at = 0; at < integers.length; at += size) {
    const numChosen = integers[at + 1], first = at + 2 + labels.length, chosen = [], probabilities = [];
    for (let k = 0; k < numChosen; k++) chosen.push(labels[integers[at + 2 + k]]);
    for (let k = 0; k < labels.length; k++) probabilities.push(reals[first + k]);
    const probability = numChosen ? probabilities[integers[at + 2]] : Math.max(...probabilities);
    found.push({ label: numChosen ? chosen[0] : null, probability, labels: chosen, probabilities, [parts]: integers[at] });
  }
  return found;
}
