/* What Python is asked once for the tables of `_ways.c`, and the ways of words in codes. */

/* Ask what a character is, and keep the answer: None, or its symbol and the ways that begin with it. Its index, from 1
   on; 0 with an exception. */
static uint32_t ask_char(Tables *self, uint32_t code_point)
{
    PyObject *answer = PyObject_CallFunction(self->ask[CHAR], "I", (unsigned int)code_point);
    Char known = {0, 0, 0, 0, 0, answer == Py_None};
    if (answer == NULL)
        return 0;
    if (!known.stops) {
        const char *ways;
        Py_ssize_t size;
        unsigned long long reads;
        if (!PyArg_ParseTuple(answer, "IIKy#", &known.symbol, &known.kind, &reads, &ways, &size)) {
            Py_DECREF(answer);
            return 0;
        }
        if (known.kind >= KINDS) {
            Py_DECREF(answer);
            PyErr_SetString(PyExc_ValueError, "no such kind");
            return 0;
        }
        known.reads = reads;
        if (!self->chains) { /* its letters */
            uint32_t number;
            known.begun = (uint32_t)self->read.count;
            for (; size >= (Py_ssize_t)sizeof(number); size -= (Py_ssize_t)sizeof(number), known.count++) {
                memcpy(&number, ways + known.count * sizeof(number), sizeof(number));
                if (append(&self->read, number) < 0) {
                    Py_DECREF(answer);
                    return 0;
                }
            }
        } else
            known.count = (uint32_t)(size / (Py_ssize_t)sizeof(Way));
        if (self->chains)
            known.begun = (uint32_t)self->begun_count;
        size_t more = self->chains ? known.count : 0;
        Way *begun = realloc(self->begun, (self->begun_count + more + 1) * sizeof(Way));
        if (begun == NULL) {
            Py_DECREF(answer);
            PyErr_NoMemory();
            return 0;
        }
        self->begun = begun;
        memcpy(begun + self->begun_count, ways, more * sizeof(Way));
        self->begun_count += more;
    }
    Py_DECREF(answer);
    Char *chars = realloc(self->chars, (self->char_count + 1) * sizeof(Char));
    if (chars == NULL) {
        PyErr_NoMemory();
        return 0;
    }
    self->chars = chars;
    chars[self->char_count++] = known;
    uint32_t index = (uint32_t)self->char_count;
    if (code_point < ASCII)
        self->ascii[code_point] = index;
    else if (put(&self->others, code_point, index) < 0)
        return 0;
    return index;
}

static uint32_t char_of(Tables *self, uint32_t code_point)
{
    if (code_point < ASCII)
        return self->ascii[code_point] ? self->ascii[code_point] : ask_char(self, code_point);
    const uint32_t *known = find(&self->others, code_point);
    return known ? *known : ask_char(self, code_point);
}

/* Ask what a symbol comes to behind a row or a position: pairs of two numbers, of letters (NO_LETTER where none is
   complete) and rows, or of 0 and positions. Where in `read` the answer is, with the number of pairs before it. */
static int ask_read(Tables *self, uint32_t row, uint32_t symbol, uint64_t most, uint32_t *at)
{
    PyObject *answer = PyObject_CallFunction(self->ask[READ], "II", (unsigned int)row, (unsigned int)symbol);
    int done = answer == NULL ? FAILED : 0;
    if (!done && !PyTuple_Check(answer)) {
        PyErr_SetString(PyExc_TypeError, "no tuple");
        done = FAILED;
    }
    Py_ssize_t count = done ? 0 : PyTuple_Size(answer) / 2;
    *at = (uint32_t)self->read.count;
    if (!done)
        done = append(&self->read, (uint32_t)count);
    for (Py_ssize_t each = 0; !done && each < 2 * count; each++) {
        uint64_t number = 0;
        done = number_of(answer, each, &number);
        if (!done && number > most) {
            PyErr_SetString(PyExc_ValueError, "too great");
            done = FAILED;
        }
        if (!done)
            done = append(&self->read, (uint32_t)number);
    }
    Py_XDECREF(answer);
    return done ? FAILED : put(&self->reads, (uint64_t)symbol << 32 | row, *at);
}

/* -- words in codes ------------------------------------------------------------------------------------------------ */

/* A letter that is complete, or none: where the way's word leads. */
static int arrive(Tables *self, const Way *way, uint64_t place, uint32_t letter, uint32_t symbol, Set *after)
{
    if (letter == NO_LETTER && (place != way->place || place & BETWEEN || symbol == '\r' || symbol == '\n'))
        return add(after, place, way->spot, way->start);
    uint64_t key = (uint64_t)letter << 32 | way->spot;
    const uint32_t *known = find(&self->leads, key);
    uint32_t spot;
    if (known)
        spot = *known;
    else {
        PyObject *answer = PyObject_CallFunction(self->ask[LEAD], "II", (unsigned int)way->spot, (unsigned int)letter);
        unsigned long number = answer == NULL ? 0 : PyLong_AsUnsignedLong(answer);
        Py_XDECREF(answer);
        spot = (uint32_t)number;
        if (PyErr_Occurred() || put(&self->leads, key, spot) < 0)
            return FAILED;
    }
    return spot == COMPLETE ? STOPS : spot ? add(after, place, spot, way->start) : GOES_ON;
}

static uint32_t bits_row(uint32_t rest, uint32_t value)
{
    return FIRST_DIGITS + (1u << rest) + value;
}

/* As `BitEncoding.start` and `step`: how many readings there are. */
static uint32_t read_bits(const Bits *bits, uint32_t row, uint32_t symbol, Reading *found)
{
    uint32_t count = 0, sign = symbol < 256 ? bits->signs[symbol] : NO_DIGIT, digit = sign & ~(uint32_t)PASSED;
    if (!row) {
        if (digit <= DIGIT)
            found[count++] = (Reading){NO_LETTER, 1 + digit};
        return count;
    }
    if (row & ESCAPED) {
        row &= ~(uint32_t)ESCAPED;
        if (symbol == 'n' || symbol == 'r')
            found[count++] = (Reading){NO_LETTER, row};
    }
    if (sign & PASSED)
        found[count++] = (Reading){NO_LETTER, row};
    if (symbol == '\\')
        found[count++] = (Reading){NO_LETTER, row | ESCAPED};
    if (digit == PADDING)
        found[count++] = (Reading){NO_LETTER, bits_row(0, 0)};
    if (digit > DIGIT)
        return count;
    uint32_t first = row <= FIRST_DIGITS, rest = 0;
    while (!first && rest < 7 && row >= bits_row(rest + 1, 0))
        rest++;
    for (uint32_t at = 0; at < (first ? bits->count : 1); at++) {
        uint32_t value = (first ? row - 1 : (row - bits_row(rest, 0)) & 0xFF) << bits->width | digit;
        uint32_t known = (first ? bits->counts[at] : rest) + bits->width, left = known % 8;
        uint32_t letter = known >= 8 ? 1 + (value >> left & 0xFF) : NO_LETTER;
        found[count++] = (Reading){letter, bits_row(left, value & ((1u << left) - 1))};
    }
    return count;
}

/* Rows of UTF-8: 0, and behind some bytes of a character of two, three or four, what they say. */
enum { TWO = 1, THREE = TWO + 32, THREE_2 = THREE + 16, FOUR = THREE_2 + 1024, FOUR_2 = FOUR + 8, FOUR_3 = FOUR_2 + 512 };

/* The row behind a byte that leaves a character unfinished; -1 if it is none of UTF-8; 0 if it makes a character. */
static int read_utf8(uint32_t row, uint32_t byte)
{
    if (!row)
        return byte < 0x80 ? 0 : byte < 0xC2 ? -1 : byte < 0xE0 ? TWO + (int)(byte & 0x1F)
             : byte < 0xF0 ? THREE + (int)(byte & 0xF) : byte < 0xF5 ? FOUR + (int)(byte & 7) : -1;
    if ((byte & 0xC0) != 0x80)
        return -1;
    uint32_t bits = byte & 0x3F;
    if (row < THREE || (row >= THREE_2 && row < FOUR) || row >= FOUR_3)
        return 0;
    if (row < THREE_2) { /* neither what two bytes say nor a surrogate */
        uint32_t value = (row - THREE) << 6 | bits;
        return value < 0x20 || (value >= 0x360 && value < 0x380) ? -1 : THREE_2 + (int)value;
    }
    if (row < FOUR_2) {
        uint32_t value = (row - FOUR) << 6 | bits;
        return value < 0x10 || value >= 0x110 ? -1 : FOUR_2 + (int)value;
    }
    return FOUR_3 + (int)((row - FOUR_2) << 6 | bits);
}

/* What a symbol comes to in a stage of the way's code, and in those behind it. `place`: with the rows before it as they
   are now; `read`: the character's own symbol. */
static int follow(Tables *self, const Way *way, uint64_t place, int stage, uint32_t symbol, uint32_t read, Set *after)
{
    const unsigned char *stages = &self->stages[STAGES * (way->place >> 16 * STAGES)];
    int shift = 16 * stage, last = stage + 1 == STAGES || stages[stage + 1] == NO_STAGE;
    uint32_t row = place >> shift & 0xFFFF, at = 0, count;
    int unfinished = 0;
    Reading bits[MAX_BITS + 2];
    if (stages[stage] >= BITS)
        count = read_bits(&self->bits[stages[stage] - BITS], row, symbol, bits);
    else if (stages[stage] == UTF8 && symbol && (unfinished = read_utf8(row, symbol))) {
        bits[0] = (Reading){NO_LETTER, (uint32_t)unfinished};
        count = unfinished > 0;
    } else {
        uint32_t asked = symbol | (stages[stage] == UTF8 ? OF_UTF8 : 0);
        const uint32_t *known = find(&self->reads, (uint64_t)asked << 32 | row);
        if (known)
            at = *known;
        else if (ask_read(self, row, asked, MAX_ROW, &at) < 0)
            return FAILED;
        count = self->read.numbers[at++];
    }
    for (uint32_t each = 0; each < count; each++, at += 2) {
        Reading reading = stages[stage] >= BITS || unfinished ? bits[each]
                                                : (Reading){self->read.numbers[at], self->read.numbers[at + 1]};
        uint64_t target = (place & ~((uint64_t)0xFFFF << shift)) | (uint64_t)reading.row << shift;
        int done = reading.letter == NO_LETTER || last
                       ? arrive(self, way, target, reading.letter, read, after)
                       : follow(self, way, target, stage + 1, reading.letter - 1, read, after);
        if (done != GOES_ON)
            return done;
    }
    return GOES_ON;
}

/* Where ways in codes lead with a character. */
static int follow_codes(Tables *self, const Char *seen, uint32_t start, const Set *now, Set *after)
{
    int done = GOES_ON;
    for (uint32_t at = 0; done == GOES_ON && at < now->count; at++)
        done = follow(self, &now->ways[at], now->ways[at].place, 0, seen->symbol, seen->symbol, after);
    for (uint32_t at = 0; done == GOES_ON && at < seen->count; at++) {
        Way begun = self->begun[seen->begun + at];
        done = add(after, begun.place, begun.spot, start);
    }
    return done;
}
