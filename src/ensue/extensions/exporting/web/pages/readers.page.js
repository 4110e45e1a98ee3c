const KINDS = { u1: "Uint8", i1: "Int8", u2: "Uint16", i2: "Int16", u4: "Uint32", i4: "Int32", u8: "BigUint64", i8: "BigInt64", f4: "Float32", f8: "Float64", b1: "Uint8" };
const MISSING = new Set(["", "nan", "na", "n/a", "null", "none", "?"]);
const IDX = { 8: "u1", 9: "i1", 11: "i2", 12: "i4", 13: "f4", 14: "f8" };  // by the type in the header of a file

/** Reads the series of an array (frames, width) or (series, frames, width) at an offset. */
function* seriesOfArray(bytes, begin, kind, isLittle, sizes, width, scale = 1) {
  const [count, frames, each] = sizes.length === 1 ? [1, sizes[0], 1] : sizes.length === 2 ? [1, ...sizes] : sizes;
  if (each !== width) throw new RangeError(`expected frames of ${width} numbers, found ${each}`);
  const size = Number(kind[1]), numbers = new DataView(bytes.buffer, bytes.byteOffset + begin), total = frames * width;
  if (!count || !frames || count * total * size !== numbers.byteLength) throw new RangeError("the file is damaged");
  checkFrames(frames);
  const at = place => Number(numbers[`get${KINDS[kind]}`](place * size, isLittle)) / scale;
  for (let n = 0; n < count; n++) yield { place: count > 1 ? `[${n}]` : "", input: toRows(Float32Array.from({ length: total }, (_, k) => at(n * total + k)), width) };
}

/** Reads an .npy file: a Python dictionary, then the data. */
function seriesOfNpy(bytes, width) {
  const view = new DataView(bytes.buffer, bytes.byteOffset), from = bytes[6] > 1 ? 12 : 10;
  const isNpy = bytes.length >= from && [0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59].every((byte, k) => bytes[k] === byte);
  const begin = isNpy ? from + (from > 10 ? view.getUint32(8, true) : view.getUint16(8, true)) : 0;
  const head = new TextDecoder("latin1").decode(bytes.subarray(from, begin));
  const [, order, kind] = /'descr': '([<>|=])(\w+)'/.exec(head) ?? [], sizes = /'shape': \(([\d, ]*)\)/.exec(head)?.[1].match(/\d+/g)?.map(Number);
  if (!kind || !sizes || sizes.length > 3 || !head.includes("'fortran_order': False")) throw new RangeError("the file is damaged, or not an array of numbers in C order");
  if (!KINDS[kind]) throw new RangeError("expected numbers of 8 to 64 bits");
  return seriesOfArray(bytes, begin, kind, order !== ">", sizes, width);
}

/** Reads images (series, rows, columns) in MNIST's format: two zeros, the type, the number of dimensions, the shape,
 * the data. */
function seriesOfIdx(bytes, width) {
  const view = new DataView(bytes.buffer, bytes.byteOffset), kind = IDX[bytes[2]];
  if (bytes.length < 16 || bytes[0] || bytes[1] || bytes[3] !== 3 || !kind) throw new RangeError("the file is damaged, or not an idx file of images");
  return seriesOfArray(bytes, 16, kind, false, [4, 8, 12].map(at => view.getUint32(at)), width, kind === "u1" ? 255 : 1);
}

/** The nonempty rows of a table: their cells, without quotes and surrounding blanks. */
function* rowsOfTable(text, delimiter) {
  const cell = delimiter === "\t" ? /()([^\t\n]*)/y : new RegExp(`(?:"((?:[^"]|"")*)"?)?([^${delimiter}\\n]*)`, "y");
  for (let at = 0; at < text.length;) {
    const cells = [];
    for (let continues = true; continues; at++) {
      cell.lastIndex = at;
      const [whole, quoted = "", plain] = cell.exec(text);
      cells.push((quoted.replaceAll('""', '"') + plain).trim());
      at += whole.length;
      continues = text[at] === delimiter;
    }
    if (cells.length > 1 || cells[0]) yield cells;
  }
}

/** Parses a cell; NaN if it is missing, undefined if it is not a number. */
function numberOf(cell) {
  if (MISSING.has(cell.toLowerCase())) return NaN;
  const number = Number(cell);
  return Number.isNaN(number) || /[xob]/i.test(cell) ? undefined : number;
}

/** Reads the series of a table whose first row has column names; with `mayBeBare` also of numbers alone. */
function* seriesOfTable(text, width, { names, series, others }, mayBeBare) {
  const delimiter = ["\t", ",", ";"].find(sign => text.split("\n", 1)[0].includes(sign)) ?? ",", rows = rowsOfTable(text, delimiter);
  const first = rows.next().value ?? [], isBare = mayBeBare && first.every(cell => numberOf(cell) !== undefined);
  const head = isBare ? first.map((_, k) => names[k] ?? "") : first;
  if (head.includes("path")) throw new TypeError("the table has paths; choose the files themselves");
  const features = head.map((_, k) => k).filter(k => isBare || head[k] !== series && !others.includes(head[k]));
  if (features.length !== width) throw new RangeError(`expected rows of ${width} numbers, found ${features.length}`);
  if (!isBare && names.length && features.some((k, place) => head[k] !== names[place])) throw new RangeError(`the columns are not ${names.join(", ")}`);
  const by = isBare ? -1 : head.indexOf(series);
  let frames = [], name = "", line = isBare ? 0 : 1;
  for (const cells of isBare ? [first, ...rows] : rows) {
    line++;
    if (cells.length !== head.length) throw new RangeError(`row ${line} has ${cells.length} cells; the first row has ${head.length}`);
    if (frames.length && by >= 0 && cells[by] !== name) {
      yield { name, input: frames };
      frames = [];
    }
    name = cells[by] ?? "";
    frames.push(features.map(k => {
      const number = numberOf(cells[k]);
      if (number === undefined) throw new TypeError(`row ${line}: "${clipped(cells[k], 40)}" is not a number`);
      return number;
    }));
    checkFrames(frames.length);
  }
  if (frames.length) yield { name, input: frames };
}

/** Reads the series of a file, by the suffix of its name. */
function readerOf(name, width, table) {
  if (/idx[1-9]/.test(name)) return bytes => seriesOfIdx(bytes, width);
  if (/\.npy$/i.test(name)) return bytes => seriesOfNpy(bytes, width);
  if (/\.(csv|tsv|tab)$/i.test(name)) return bytes => seriesOfTable(new TextDecoder().decode(bytes), width, table, false);
  return null;
}

