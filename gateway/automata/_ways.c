/* The ways through an automaton that a text leaves open, followed without a determinised state for each character.
   `gateway.automata.native_words` and `native_codes` say what the numbers stand for: what is not in a table yet is asked
   of Python, once.

   Only the stable ABI is used. Ways come from Python as bytes and are not trusted: no number in them is an index that is
   not checked. Python may run other threads while it answers, so nothing of a call is kept in an object, and no pointer
   into a table is kept while Python is asked. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define ASCII 128
#define FIRST_SIZE 64     /* of a set; a power of two, as all sizes are */
#define MAX_WAYS 65536    /* more are for Python to follow */
#define SORTED_SIMPLY 64  /* so many at most */
#define STAGES 3          /* of a code: in the bits of a place, from the lowest on, 16 for each, and the chain above them */
#define BETWEEN 0x800080008000u /* bits of rows between two letters */
#define MAX_BITS 8        /* digits that count differently where a code of bits begins; and tables of such codes */
#define FIRST_DIGITS 64   /* rows of a code of bits: 0; behind the first digit; then with so many bits left over */
#define ESCAPED 0x4000    /* in such rows: behind a backslash */

enum { DIGIT = 63, NO_DIGIT, PADDING, PASSED = 128 }; /* what a symbol is to a code of bits */
enum { NO_STAGE, ASKED, UTF8, BITS };                 /* stages of a chain; BITS and more: by that table */
enum { FAILED = -1, GOES_ON, STOPS }; /* STOPS: a match is certain, or Python must say */
enum { SIGN = 1, MASKS = 2 }; /* what a character is besides letters */
/* As in word_places.py; the others are of places that only Python follows. */
enum {
    EDGED = 1, JOINED = 4, PLAIN = 8, SECOND_PLAIN = 16, DOUBLED = 32, UNEVEN = 64, EXACT = 128, BLANK = 512, MASKED = 1024,
};
enum { NO_LETTER, COMPLETE = 0xFFFFFFFF };

/* Where one way is, and the number of its beginning: the later the greater. */
typedef struct {
    uint64_t place;
    uint32_t spot, start;
} Way;

/* Ways, each once with the earliest of its beginnings; `slots` has their indices, from 1 on, by hash. */
typedef struct {
    Way *ways;
    uint32_t *slots, count, size;
} Set;

/* From 64 bits to 32; keys are kept increased by one, so that 0 is a free slot. */
typedef struct {
    uint64_t *keys;
    uint32_t *values, count, size;
} Map;

/* Numbers one behind the other. */
typedef struct {
    uint32_t *numbers;
    size_t count, size;
} Pool;

/* What a character is: its symbol, its kind, its bits, and the ways that begin with it in codes. */
typedef struct {
    uint64_t reads;
    uint32_t symbol, kind, begun, count;
    int stops;
} Char;
#define OF_UTF8 0x10000 /* in a symbol: the row is one of UTF-8 */
#define MAX_ROW 0xFFFF /* and letters */
#define OWN 0x800000 /* numbers of positions from here on are given here, below by Python */
#define MAX_POSITION 0xFFFFFF
#define LETTER_BITS 59 /* as in word_trie.py */
#define MAX_EDITS 3
#define MAX_FLAGS 0xFFF
#define MAX_NODES 0x3FFFFF
#define MAX_TRIES 32
#define KINDS 4 /* of characters, as in contexts.py */
#define ALL_RIGHTS 15
#define MOVES 32

/* A gateway.automata.encodings.BitEncoding. */
typedef struct {
    uint32_t width, count;
    unsigned char counts[MAX_BITS], signs[256];
} Bits;

/* What a symbol comes to: a letter, from 1 on, and the row behind it. */
typedef struct {
    uint32_t letter, row;
} Reading;

enum { FIRST, LENGTH, LIGHTEST, HEAVIEST, LONGEST, TO_END, GUARD, ARRAYS };
/* A gateway.automata.word_trie.WordTrie, with the edits that there may be and how long words must be; a position is in one, or in NO_TRIE where only Python follows it. */
typedef struct {
    PyObject *labels;
    const uint32_t *arrays[ARRAYS];
    Py_ssize_t count;
    unsigned int edits, shortest, owner, has;
    Py_buffer buffers[ARRAYS];
} Trie;
#define NO_TRIE 0xFF

/* What a position is in a trie, as `Place` has it. */
typedef struct {
    uint32_t trie, node, edits, flags, skip, swapped;
} Node;

/* Of a gateway.automata.pattern_states.Position what matters here; `passes` and `may_match` as there. */
typedef struct {
    uint64_t onward;
    uint32_t waits, owner;
    unsigned char known, arrives, may_match, passes;
    Node at;
} Position;

enum { CHAR, READ, LEAD, PLACE, QUESTIONS }; /* what Python is asked: see `_char` and so on there */

typedef struct {
    PyObject_HEAD
    PyObject *ask[QUESTIONS];
    unsigned char *stages; /* STAGES of each chain */
    Py_ssize_t chains;
    Bits bits[MAX_BITS];
    uint32_t ascii[ASCII]; /* indices of characters, from 1 on */
    Map others, reads, leads;
    Pool read; /* for each answer: how many pairs of a letter and a row */
    Char *chars;
    Way *begun;
    size_t char_count, begun_count;
    Position *positions; /* where there are no codes: `read` are those behind a position */
    uint32_t position_count, owners;
    Position *nodes; /* positions that Python need not know, by their numbers from OWN on */
    uint32_t node_count, node_size;
    Map places; /* numbers of positions, by what they are in a trie; 0: none */
    Trie *tries;
    uint32_t trie_count, shortest, ordinary; /* with a weight below these more is to be known of a word */
    PyObject *before, *moves[KINDS + 1][MOVES]; /* of leaps, which have them in common: see `move_of` */
} Tables;

/* -- tables -------------------------------------------------------------------------------------------------------- */

static uint32_t hashed(uint64_t key)
{
    key *= 0x9E3779B97F4A7C15u;
    return (uint32_t)(key >> 32);
}

static int no_memory(void)
{
    PyErr_NoMemory();
    return FAILED;
}

/* The value of a key, or NULL. */
static const uint32_t *find(const Map *map, uint64_t key)
{
    if (map->size)
        for (uint32_t at = hashed(++key) & (map->size - 1); map->keys[at]; at = (at + 1) & (map->size - 1))
            if (map->keys[at] == key)
                return &map->values[at];
    return NULL;
}

static void fill(Map *map, uint64_t kept, uint32_t value)
{
    uint32_t at = hashed(kept) & (map->size - 1);
    while (map->keys[at] && map->keys[at] != kept)
        at = (at + 1) & (map->size - 1);
    map->count += !map->keys[at];
    map->keys[at] = kept;
    map->values[at] = value;
}

static int put(Map *map, uint64_t key, uint32_t value)
{
    if (2 * map->count >= map->size) {
        Map larger = {NULL, NULL, 0, map->size ? 2 * map->size : FIRST_SIZE};
        larger.keys = calloc(larger.size, sizeof(uint64_t));
        larger.values = calloc(larger.size, sizeof(uint32_t));
        if (larger.keys == NULL || larger.values == NULL) {
            free(larger.keys);
            free(larger.values);
            return no_memory();
        }
        for (uint32_t at = 0; at < map->size; at++)
            if (map->keys[at])
                fill(&larger, map->keys[at], map->values[at]);
        free(map->keys);
        free(map->values);
        *map = larger;
    }
    fill(map, key + 1, value);
    return 0;
}

static int append(Pool *pool, uint32_t number)
{
    if (pool->count == pool->size) {
        size_t size = pool->size ? 2 * pool->size : FIRST_SIZE;
        uint32_t *larger = size < UINT32_MAX ? realloc(pool->numbers, size * sizeof(uint32_t)) : NULL;
        if (larger == NULL)
            return no_memory();
        pool->numbers = larger;
        pool->size = size;
    }
    pool->numbers[pool->count++] = number;
    return 0;
}

/* An item of a tuple as a number; FAILED with an exception. */
static int number_of(PyObject *tuple, Py_ssize_t at, uint64_t *number)
{
    PyObject *item = PyTuple_GetItem(tuple, at);
    if (item == NULL)
        return FAILED;
    *number = PyLong_AsUnsignedLongLong(item);
    return *number == (uint64_t)-1 && PyErr_Occurred() ? FAILED : 0;
}

/* -- sets ---------------------------------------------------------------------------------------------------------- */

static int open_set(Set *set, uint32_t size)
{
    set->ways = malloc(size * sizeof(Way));
    set->slots = calloc(2 * size, sizeof(uint32_t));
    set->count = 0;
    set->size = size;
    return set->ways == NULL || set->slots == NULL ? no_memory() : 0;
}

static void close_set(Set *set)
{
    free(set->ways);
    free(set->slots);
}

static void empty(Set *set)
{
    set->count = 0;
    memset(set->slots, 0, 2 * set->size * sizeof(uint32_t));
}

static uint32_t *slot_of(const Set *set, uint64_t place, uint32_t spot)
{
    uint32_t mask = 2 * set->size - 1, at = hashed(place ^ (uint64_t)spot << 20 ^ place >> 29) & mask;
    while (set->slots[at] &&
           (set->ways[set->slots[at] - 1].place != place || set->ways[set->slots[at] - 1].spot != spot))
        at = (at + 1) & mask;
    return &set->slots[at];
}

static int add(Set *set, uint64_t place, uint32_t spot, uint32_t start)
{
    uint32_t *slot = slot_of(set, place, spot);
    if (*slot) {
        Way *known = &set->ways[*slot - 1];
        if (start < known->start)
            known->start = start;
        return GOES_ON;
    }
    if (set->count == set->size) {
        Set larger;
        if (set->size == MAX_WAYS)
            return STOPS;
        if (open_set(&larger, 2 * set->size) < 0) {
            close_set(&larger);
            return FAILED;
        }
        for (; larger.count < set->count; larger.count++) {
            Way way = larger.ways[larger.count] = set->ways[larger.count];
            *slot_of(&larger, way.place, way.spot) = larger.count + 1;
        }
        close_set(set);
        *set = larger;
        slot = slot_of(set, place, spot);
    }
    set->ways[set->count++] = (Way){place, spot, start};
    *slot = set->count;
    return GOES_ON;
}

static int compare(const void *one, const void *other)
{
    const Way *a = one, *b = other;
    if (a->start != b->start)
        return a->start < b->start ? -1 : 1;
    if (a->place != b->place)
        return a->place < b->place ? -1 : 1;
    return a->spot == b->spot ? 0 : a->spot < b->spot ? -1 : 1;
}

static void sort(Set *set)
{
    Way *ways = set->ways;
    if (set->count > SORTED_SIMPLY) {
        qsort(ways, set->count, sizeof(Way), compare);
        return;
    }
    for (uint32_t at = 1; at < set->count; at++) {
        Way way = ways[at];
        uint32_t to = at;
        for (; to && compare(&ways[to - 1], &way) > 0; to--)
            ways[to] = ways[to - 1];
        ways[to] = way;
    }
}

/* -- what Python is asked ------------------------------------------------------------------------------------------ */

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

/* -- positions ----------------------------------------------------------------------------------------------------- */

/* A position that is known. */
static const Position *position_at(const Tables *self, uint64_t number)
{
    return number >= OWN ? &self->nodes[number - OWN] : &self->positions[number];
}

static int is_node(const Tables *self, const Node *at)
{
    return at->trie < self->trie_count && self->tries[at->trie].has && at->node &&
           at->node < self->tries[at->trie].count && at->edits <= MAX_EDITS && at->skip <= MAX_EDITS && at->flags <= MAX_FLAGS;
}

/* What is known of a position, which is asked at first. */
static int know(Tables *self, uint64_t number)
{
    if (number >= OWN ? number - OWN < self->node_count : number < self->position_count && self->positions[number].known)
        return 0;
    PyObject *answer = number >= OWN ? NULL : PyObject_CallFunction(self->ask[LEAD], "I", (unsigned int)number);
    unsigned long long onward;
    unsigned int waits, owner;
    int arrives, may_match, passes;
    Node at;
    int known = answer != NULL && PyArg_ParseTuple(answer, "KIIiip(IIIIII)", &onward, &waits, &owner, &arrives, &may_match,
                                                   &passes, &at.trie, &at.node, &at.edits, &at.flags, &at.skip, &at.swapped);
    Py_XDECREF(answer);
    if (!known || owner >= self->owners || (at.trie != NO_TRIE && !is_node(self, &at))) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "no such position");
        return FAILED;
    }
    if (number >= self->position_count) {
        uint32_t count = 2 * (uint32_t)number + FIRST_SIZE;
        Position *larger = realloc(self->positions, count * sizeof(Position));
        if (larger == NULL)
            return no_memory();
        memset(larger + self->position_count, 0, (count - self->position_count) * sizeof(Position));
        self->positions = larger;
        self->position_count = count;
    }
    self->positions[number] = (Position){
        onward, waits, owner, 1, (unsigned char)arrives, (unsigned char)may_match, (unsigned char)passes, at,
    };
    return 0;
}

/* The bits of the letters that lead on: `Place.onward`. */
static uint64_t onward(const Tables *self, const Node *at)
{
    const Trie *trie = &self->tries[at->trie];
    if (at->swapped)
        return (uint64_t)1 << at->swapped % LETTER_BITS;
    if (at->edits != trie->edits)
        return UINT64_MAX;
    uint64_t bits = at->skip ? 0 : (uint64_t)1 << PyUnicode_ReadChar(trie->labels, at->node) % LETTER_BITS;
    Py_ssize_t begin = trie->arrays[FIRST][at->node], end = trie->arrays[FIRST][at->node + 1];
    for (uint32_t depth = at->skip; depth; depth--) {
        begin = trie->arrays[FIRST][begin];
        end = trie->arrays[FIRST][end];
    }
    for (; begin < end; begin++)
        bits |= (uint64_t)1 << PyUnicode_ReadChar(trie->labels, begin) % LETTER_BITS;
    return bits;
}

/* The number of a position from which a match is possible but does not end, as `Places` would make it; 0 if none is
   possible, or FAILED where Python must say. */
static int64_t make(Tables *self, const Node *at)
{
    const Trie *trie = &self->tries[at->trie];
    uint32_t node = at->node;
    if (trie->arrays[LONGEST][node] < trie->shortest)
        return 0;
    int ends = at->flags & EXACT && at->flags & PLAIN &&
               (trie->arrays[TO_END][node] + at->edits <= trie->edits || trie->arrays[GUARD][node]);
    int blank = PyUnicode_ReadChar(trie->labels, node) == ' ';
    if (trie->arrays[HEAVIEST][node] < self->ordinary || (!at->skip && (ends || blank)) || self->node_count == OWN)
        return FAILED;
    if (at->skip ? trie->arrays[LONGEST][node] - trie->arrays[LENGTH][node] <= at->skip
                 : trie->arrays[FIRST][node] == trie->arrays[FIRST][node + 1])
        return 0;
    if (self->node_count == self->node_size) {
        uint32_t size = self->node_size ? 2 * self->node_size : FIRST_SIZE;
        Position *larger = realloc(self->nodes, size * sizeof(Position));
        if (larger == NULL)
            return FAILED; /* and Python runs out of memory, too */
        self->nodes = larger;
        self->node_size = size;
    }
    self->nodes[self->node_count] = (Position){onward(self, at), 0, trie->owner, 1, 0, ALL_RIGHTS, 1, *at};
    return OWN + self->node_count++;
}

/* The number of the position that is so; 0 if no match is possible from there: `Places.at`. FAILED with an exception. */
static int64_t number_at(Tables *self, Node at)
{
    at.flags &= ~(uint32_t)(EDGED | JOINED | UNEVEN);
    if (self->tries[at.trie].arrays[LIGHTEST][at.node] >= self->shortest)
        at.flags &= ~(uint32_t)(SECOND_PLAIN | DOUBLED);
    uint64_t key = ((((uint64_t)at.swapped << 5 | at.trie) << 22 | at.node) << 4 | at.edits << 2 | at.skip) << 12 | at.flags;
    const uint32_t *known = find(&self->places, key);
    if (known)
        return *known;
    int64_t number = make(self, &at);
    if (number == FAILED) {
        PyObject *answer = PyObject_CallFunction(self->ask[PLACE], "IIIIII", at.trie, at.node, at.edits, at.flags, at.skip,
                                                 at.swapped);
        number = answer == NULL ? FAILED : PyLong_AsLong(answer);
        Py_XDECREF(answer);
        if (number < 0 || number >= OWN) {
            if (!PyErr_Occurred())
                PyErr_SetString(PyExc_ValueError, "no such position");
            return FAILED;
        }
    }
    return put(&self->places, key, (uint32_t)number) < 0 ? FAILED : number;
}

/* Append to `led` the position that is so, if a match is possible from there. */
static int lead(Tables *self, Node to, Pool *led)
{
    int64_t number = number_at(self, to);
    return number > 0 ? append(led, (uint32_t)number) : (int)number;
}

/* The parent of a node. */
static uint32_t parent(const Trie *trie, uint32_t node)
{
    Py_ssize_t low = 0, high = trie->count;
    while (low + 1 < high) {
        Py_ssize_t middle = (low + high) / 2;
        if (trie->arrays[FIRST][middle] <= node)
            low = middle;
        else
            high = middle;
    }
    return (uint32_t)low;
}

/* To all nodes so far below that a letter leads to; `swapped`: and the letter before it must come next, if it is another. */
static int lead_below(Tables *self, Node from, uint32_t depth, uint32_t letter, int swapped, Pool *led)
{
    const Trie *trie = &self->tries[from.trie];
    Py_ssize_t begin = from.node, end = begin + 1;
    for (; depth; depth--) {
        begin = trie->arrays[FIRST][begin];
        end = trie->arrays[FIRST][end];
    }
    for (;; begin++) {
        begin = PyUnicode_FindChar(trie->labels, letter, begin, end, 1);
        if (begin < 0)
            return begin == -1 ? 0 : FAILED;
        Node to = from;
        to.node = (uint32_t)begin;
        to.skip = 0;
        if (swapped) {
            to.swapped = PyUnicode_ReadChar(trie->labels, parent(trie, to.node));
            if (to.swapped == letter)
                continue;
        }
        if (lead(self, to, led) < 0)
            return FAILED;
    }
}

/* `ObfuscatedWords._letter`, without what other disguises than edits need. */
static int read_letter(Tables *self, const Node *place, uint32_t letter, uint32_t flag, int exact, Pool *led)
{
    Node to = *place;
    uint32_t most = self->tries[place->trie].edits, skip = place->skip;
    to.flags = (to.flags & ~(uint32_t)BLANK) | flag | EXACT | (flag & place->flags & PLAIN ? SECOND_PLAIN : 0);
    if (!exact)
        to.flags &= ~(uint32_t)EXACT;
    int done = lead_below(self, to, skip + 1, letter, 0, led);
    for (to.edits++; !done && to.edits <= most; to.edits++)
        done = lead_below(self, to, skip + 1 + to.edits - place->edits, letter, 0, led);
    if (done || place->edits >= most)
        return done;
    to.edits = place->edits + 1;
    to.flags &= ~(uint32_t)EXACT;
    return lead_below(self, to, skip + 2, letter, 1, led);
}

/* `ObfuscatedWords._step` for a character of these letters: signs, then the plain ones, those that it draws, those that it
   looks like and those that it begins to draw, each behind their number. STOPS: Python must say, since a drawing that has
   begun may lead on. */
static int read_char(Tables *self, const Node *place, uint32_t letters, Pool *led)
{
    const uint32_t sign = self->read.numbers[letters++];
    int done = 0, comes = 0;
    for (int kind = 0; !done && kind < 3; kind++) {
        uint32_t count = self->read.numbers[letters++];
        for (; !done && count; count--) {
            uint32_t letter = self->read.numbers[letters++];
            int exact = kind < 2 || !(sign & SIGN) || (sign & MASKS && place->flags & MASKED);
            comes |= letter == place->swapped;
            if (!place->swapped)
                done = read_letter(self, place, letter, kind < 2 ? PLAIN : sign & MASKS ? MASKED : 0, exact, led);
        }
    }
    Node to = *place;
    to.swapped = 0;
    if (place->swapped)
        return done || !comes ? done : lead(self, to, led);
    size_t known = led->count;
    for (uint32_t count = self->read.numbers[letters++]; !done && count; count--)
        done = read_letter(self, place, self->read.numbers[letters++], 0, 1, led);
    if (!done && led->count > known)
        return STOPS;
    if (done || place->edits >= self->tries[place->trie].edits)
        return done;
    to.edits++;
    to.flags &= ~(uint32_t)EXACT;
    if (lead(self, to, led) < 0 || lead_below(self, to, to.skip + 1, ' ', 0, led) < 0)
        return FAILED;
    to.skip++;
    return lead(self, to, led);
}

/* As `ask_read`, but for a position in a trie and a character of which only letters matter, mostly without Python. */
static int find_read(Tables *self, const Node *place, uint32_t row, const Char *seen, uint32_t *at)
{
    Pool led = {NULL, 0, 0};
    int done = read_char(self, place, seen->begun, &led);
    if (done == STOPS) {
        free(led.numbers);
        return ask_read(self, row, seen->symbol, MAX_POSITION, at);
    }
    *at = (uint32_t)self->read.count;
    if (!done)
        done = append(&self->read, (uint32_t)led.count);
    for (size_t each = 0; !done && each < led.count; each++)
        done = append(&self->read, 0) < 0 || append(&self->read, led.numbers[each]) < 0 ? FAILED : 0;
    free(led.numbers);
    return done ? FAILED : put(&self->reads, (uint64_t)seen->symbol << 32 | row, *at);
}

/* Where a character leads from a position. */
static int follow_position(Tables *self, uint64_t place, const Char *seen, uint32_t symbol, uint32_t start, Set *after)
{
    uint32_t at;
    const uint32_t *known = find(&self->reads, (uint64_t)symbol << 32 | place);
    Node node = position_at(self, place)->at;
    if (known)
        at = *known;
    else if ((seen->count && node.trie != NO_TRIE ? find_read(self, &node, (uint32_t)place, seen, &at)
                                                  : ask_read(self, (uint32_t)place, symbol, MAX_POSITION, &at)) < 0)
        return FAILED;
    int done = GOES_ON;
    for (uint32_t count = self->read.numbers[at++]; done == GOES_ON && count; count--, at += 2) {
        uint32_t target = self->read.numbers[at + 1];
        done = know(self, target) < 0 ? FAILED : add(after, target, 0, start);
    }
    return done;
}

/* Is a match certain behind a character of this kind, whatever follows? And without what no longer can be one. `rights`:
   zeros, of each owner. */
static int settle(const Tables *self, uint32_t kind, Set *after, unsigned char *rights)
{
    uint32_t kept = 0;
    for (uint32_t at = 0; at < after->count; at++) {
        const Position *reached = position_at(self, after->ways[at].place);
        if (reached->passes)
            continue;
        rights[reached->owner] |= reached->arrives >> kind & 1 ? ALL_RIGHTS : reached->waits >> KINDS * kind & ALL_RIGHTS;
        if (rights[reached->owner] == ALL_RIGHTS)
            return STOPS;
    }
    for (uint32_t at = 0; at < after->count; at++) {
        const Position *reached = position_at(self, after->ways[at].place);
        rights[reached->owner] = 0;
        if (reached->passes || reached->may_match >> kind & 1)
            after->ways[kept++] = after->ways[at]; /* the slots are not asked again */
    }
    after->count = kept;
    return GOES_ON;
}

/* Where positions lead with a character, as `StateMachine._follow` has it. */
static int follow_positions(Tables *self, const Char *seen, uint32_t left, uint32_t start, const Set *now, Set *after,
                            unsigned char *rights)
{
    int done = GOES_ON;
    for (uint32_t at = 0; at < now->count; at++)
        if (position_at(self, now->ways[at].place)->waits >> (KINDS * left + seen->kind) & 1)
            return STOPS;
    for (uint32_t at = 0; done == GOES_ON && at < now->count; at++)
        if (position_at(self, now->ways[at].place)->onward & seen->reads)
            done = follow_position(self, now->ways[at].place, seen, seen->symbol, now->ways[at].start, after);
    if (done == GOES_ON && know(self, 0) < 0)
        return FAILED;
    if (done == GOES_ON) /* the position before any */
        done = follow_position(self, 0, seen, seen->symbol + left, start, after);
    return done == GOES_ON ? settle(self, seen->kind, after, rights) : done;
}

/* -- both ---------------------------------------------------------------------------------------------------------- */

/* Where all ways lead with a text, in `now`. `kinds`: what stands before each character, and at the end; behind that,
   zeros of each owner. */
static int follow_text(Tables *self, PyObject *text, Py_ssize_t length, uint32_t start, Set *now, Set *after,
                       unsigned char *kinds)
{
    for (Py_ssize_t at = 0; at < length; at++, start++) {
        uint32_t index = char_of(self, PyUnicode_ReadChar(text, at));
        if (!index)
            return FAILED;
        Char seen = self->chars[index - 1];
        if (seen.stops)
            return STOPS;
        empty(after);
        int done = self->chains ? follow_codes(self, &seen, start, now, after)
                                : follow_positions(self, &seen, kinds[at], start, now, after, kinds + length + 1);
        if (done != GOES_ON)
            return done;
        Set other = *now;
        *now = *after;
        *after = other;
        kinds[at + 1] = (unsigned char)seen.kind;
    }
    return GOES_ON;
}

/* A set of the ways that Python has as bytes. */
static int unpack(Tables *self, const char *bytes, Py_ssize_t size, Set *now)
{
    int done = GOES_ON;
    for (Py_ssize_t at = 0; done == GOES_ON && at < size / (Py_ssize_t)sizeof(Way); at++) {
        Way way;
        memcpy(&way, bytes + at * (Py_ssize_t)sizeof(Way), sizeof(Way));
        if (!self->chains)
            done = know(self, way.place);
        else if ((Py_ssize_t)(way.place >> 16 * STAGES) >= self->chains)
            done = STOPS;
        if (done == GOES_ON)
            done = add(now, way.place, way.spot, way.start);
    }
    return done;
}

/* One of the moves of a `Leap`: of a register, with KINDS, or of what begins behind one of `before`. States are many, and
   each has several moves: so what is equal is one object. */
static PyObject *move_of(Tables *self, uint32_t number, uint32_t kind, PyObject *before)
{
    if (before != self->before) {
        for (int each = 0; each < KINDS * MOVES; each++)
            Py_CLEAR(self->moves[each / MOVES][each % MOVES]);
        PyObject *last = self->before;
        self->before = Py_NewRef(before);
        Py_XDECREF(last);
    }
    PyObject **known = number < MOVES ? &self->moves[kind][number] : NULL;
    if (known != NULL && *known != NULL)
        return Py_NewRef(*known);
    PyObject *state = kind == KINDS ? Py_None : PyTuple_GetItem(before, kind);
    PyObject *move = state == NULL ? NULL : Py_BuildValue("(IO)", number, state);
    if (move != NULL && known != NULL && *known == NULL)
        *known = Py_NewRef(move);
    return move;
}

/* Number the beginnings of sorted ways from 0 on: of each, as in a `Leap`, the number that it had, below `count`, or the
   offset in the text and which of `before` the state before it is. */
static PyObject *numbered(Tables *self, Set *set, uint32_t count, PyObject *before, const unsigned char *kinds)
{
    uint32_t starts = 0, last = 0, of = 0;
    for (uint32_t at = 0; at < set->count; at++)
        starts += !at || set->ways[at].start != set->ways[at - 1].start;
    PyObject *moves = PyTuple_New(starts);
    for (uint32_t at = 0; moves != NULL && at < set->count; at++) {
        if (!at || set->ways[at].start != last) {
            last = set->ways[at].start;
            PyObject *move = last < count ? move_of(self, last, KINDS, before)
                                          : move_of(self, last - count, kinds[last - count], before);
            if (move == NULL || PyTuple_SetItem(moves, of++, move) < 0)
                Py_CLEAR(moves);
        }
        set->ways[at].start = of - 1;
    }
    return moves;
}

/* What `step` returns. */
static PyObject *described(Tables *self, Set *now, uint32_t count, PyObject *before, const unsigned char *kinds,
                           Py_ssize_t length)
{
    uint32_t waits = 0;
    sort(now);
    for (uint32_t at = 0; !self->chains && at < now->count; at++)
        waits |= position_at(self, now->ways[at].place)->waits;
    PyObject *moves = numbered(self, now, count, before, kinds);
    return moves == NULL ? NULL
                         : Py_BuildValue("(y#NiI)", (const char *)now->ways, (Py_ssize_t)(now->count * sizeof(Way)), moves,
                                         (int)kinds[length], (unsigned int)waits);
}

PyDoc_STRVAR(step_doc,
             "step(ways, count, left, text, before): the ways behind a text, how their beginnings have moved, as in a\n"
             "`Leap`, what stands before the next character, and what they wait for. `count`: of the ways' beginnings;\n"
             "`left` stands before the text; `before`: of each kind the state in which it stands before. None if Python\n"
             "must say.");

static PyObject *step(PyObject *object, PyObject *const *given, Py_ssize_t given_count)
{
    Tables *self = (Tables *)object;
    char *bytes;
    Py_ssize_t size;
    if (given_count != 5 || !PyUnicode_Check(given[3]) || !PyTuple_Check(given[4])) {
        PyErr_SetString(PyExc_TypeError, "ways, two numbers, a text and states");
        return NULL;
    }
    unsigned long count = PyLong_AsUnsignedLong(given[1]), left = PyErr_Occurred() ? 0 : PyLong_AsUnsignedLong(given[2]);
    Py_ssize_t length = PyUnicode_GetLength(given[3]);
    if (PyErr_Occurred() || PyBytes_AsStringAndSize(given[0], &bytes, &size) < 0)
        return NULL;
    if (count > UINT32_MAX / 2 || length > UINT32_MAX / 2 || left >= KINDS || self->ask[CHAR] == NULL)
        Py_RETURN_NONE;
    Set now, after;
    unsigned char *kinds = calloc((size_t)length + 1 + self->owners, 1);
    int done = (open_set(&now, FIRST_SIZE) < 0) | (open_set(&after, FIRST_SIZE) < 0) ? FAILED : GOES_ON;
    if (kinds == NULL)
        done = no_memory();
    else
        kinds[0] = (unsigned char)left;
    if (done == GOES_ON)
        done = unpack(self, bytes, size, &now);
    if (done == GOES_ON)
        done = follow_text(self, given[3], length, (uint32_t)count, &now, &after, kinds);
    PyObject *result = done == STOPS ? Py_NewRef(Py_None) : NULL;
    if (done == GOES_ON)
        result = described(self, &now, (uint32_t)count, given[4], kinds, length);
    close_set(&now);
    close_set(&after);
    free(kinds);
    return result;
}

PyDoc_STRVAR(number_doc, "number(trie, node, edits, flags, skip, swapped): of the position that is so; 0: there is none.");

static PyObject *number(PyObject *object, PyObject *arguments)
{
    Tables *self = (Tables *)object;
    Node at;
    if (!PyArg_ParseTuple(arguments, "IIIIII", &at.trie, &at.node, &at.edits, &at.flags, &at.skip, &at.swapped))
        return NULL;
    if (!is_node(self, &at)) {
        PyErr_SetString(PyExc_ValueError, "no such node");
        return NULL;
    }
    int64_t found = number_at(self, at);
    return found < 0 ? NULL : PyLong_FromLong((long)found);
}

PyDoc_STRVAR(node_doc, "node(number): the reverse, of numbers that Python has not given.");

static PyObject *node(PyObject *object, PyObject *given)
{
    const Tables *self = (Tables *)object;
    unsigned long number = PyLong_AsUnsignedLong(given);
    if (PyErr_Occurred())
        return NULL;
    if (number < OWN || number - OWN >= self->node_count) {
        PyErr_SetString(PyExc_ValueError, "no such number");
        return NULL;
    }
    const Node *at = &self->nodes[number - OWN].at;
    return Py_BuildValue("(IIIIII)", at->trie, at->node, at->edits, at->flags, at->skip, at->swapped);
}

PyDoc_STRVAR(size_doc, "size(): how much is known.");

static PyObject *size(PyObject *object, PyObject *Py_UNUSED(nothing))
{
    const Tables *self = (Tables *)object;
    return PyLong_FromSize_t((size_t)self->reads.count + self->leads.count + self->places.count + self->char_count);
}

/* Of a code of bits: the width, how many of a first digit's bits may count, and what each symbol is. */
static int open_bits(Bits *bits, PyObject *description)
{
    const char *counts, *signs;
    Py_ssize_t count, size;
    if (!PyArg_ParseTuple(description, "Iy#y#", &bits->width, &counts, &count, &signs, &size))
        return -1;
    int right = bits->width > 0 && bits->width < 8 && count <= MAX_BITS && size == sizeof(bits->signs);
    for (Py_ssize_t at = 0; right && at < count; at++)
        right = counts[at] >= 0 && counts[at] <= 8;
    if (!right) {
        PyErr_SetString(PyExc_ValueError, "bits");
        return -1;
    }
    bits->count = (uint32_t)count;
    memcpy(bits->counts, counts, (size_t)count);
    memcpy(bits->signs, signs, sizeof(bits->signs));
    return 0;
}

/* The labels of a trie, its owner, how many edits there may be and how long words must be, and its arrays. Nothing for one
   that only Python follows. */
static int open_trie(Trie *trie, PyObject *description)
{
    PyObject *arrays[ARRAYS];
    if (!PyTuple_Check(description) || PyTuple_Size(description) == 0)
        return 0;
    if (!PyArg_ParseTuple(description, "UIIIOOOOOOO", &trie->labels, &trie->owner, &trie->edits, &trie->shortest, &arrays[0],
                          &arrays[1], &arrays[2], &arrays[3], &arrays[4], &arrays[5], &arrays[6]))
        return -1;
    Py_INCREF(trie->labels);
    trie->count = PyUnicode_GetLength(trie->labels);
    int right = trie->count <= MAX_NODES && trie->edits <= MAX_EDITS;
    for (int at = 0; at < ARRAYS; at++) {
        if (PyObject_GetBuffer(arrays[at], &trie->buffers[at], PyBUF_SIMPLE) < 0)
            return -1;
        trie->arrays[at] = trie->buffers[at].buf;
        right = right && trie->buffers[at].len == (trie->count + (at == FIRST)) * (Py_ssize_t)sizeof(uint32_t);
    }
    for (Py_ssize_t node = 0; right && node <= trie->count; node++)
        right = trie->arrays[FIRST][node] <= trie->count &&
                (!node || trie->arrays[FIRST][node - 1] <= trie->arrays[FIRST][node]);
    if (!right) {
        PyErr_SetString(PyExc_ValueError, "no trie");
        return -1;
    }
    trie->has = 1;
    return 0;
}

static int tables_init(PyObject *object, PyObject *arguments, PyObject *keywords)
{
    Tables *self = (Tables *)object;
    const char *stages;
    Py_ssize_t size;
    PyObject *ask[QUESTIONS], *bits, *tries;
    if (keywords != NULL || self->stages != NULL) {
        PyErr_SetString(PyExc_TypeError, "once, without keywords");
        return -1;
    }
    if (!PyArg_ParseTuple(arguments, "OOOOIy#O!O!II", &ask[CHAR], &ask[READ], &ask[LEAD], &ask[PLACE], &self->owners, &stages,
                          &size, &PyTuple_Type, &bits, &PyTuple_Type, &tries, &self->shortest, &self->ordinary))
        return -1;
    Py_ssize_t tables = PyTuple_Size(bits);
    int right = tables <= MAX_BITS && size % STAGES == 0 && PyTuple_Size(tries) <= MAX_TRIES;
    for (Py_ssize_t at = 0; right && at < size; at++)
        right = (unsigned char)stages[at] < BITS + tables && (stages[at] != NO_STAGE || at % STAGES);
    if (!right) {
        PyErr_SetString(PyExc_ValueError, "stages");
        return -1;
    }
    for (Py_ssize_t at = 0; at < tables; at++)
        if (open_bits(&self->bits[at], PyTuple_GetItem(bits, at)) < 0)
            return -1;
    self->stages = malloc((size_t)size + 1);
    self->tries = calloc((size_t)PyTuple_Size(tries) + 1, sizeof(Trie));
    if (self->stages == NULL || self->tries == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (; self->trie_count < (uint32_t)PyTuple_Size(tries); self->trie_count++)
        if (open_trie(&self->tries[self->trie_count], PyTuple_GetItem(tries, self->trie_count)) < 0) {
            self->trie_count++;
            return -1;
        }
    memcpy(self->stages, stages, (size_t)size);
    self->chains = size / STAGES;
    for (int at = 0; at < QUESTIONS; at++)
        self->ask[at] = Py_NewRef(ask[at]);
    return 0;
}

static int tables_traverse(PyObject *object, visitproc visit, void *arg)
{
    const Tables *self = (Tables *)object;
    Py_VISIT(Py_TYPE(object));
    for (int at = 0; at < QUESTIONS; at++)
        Py_VISIT(self->ask[at]);
    for (int at = 0; at < (KINDS + 1) * MOVES; at++)
        Py_VISIT(self->moves[at / MOVES][at % MOVES]);
    Py_VISIT(self->before);
    return 0;
}

static int tables_clear(PyObject *object)
{
    Tables *self = (Tables *)object;
    for (int at = 0; at < QUESTIONS; at++)
        Py_CLEAR(self->ask[at]);
    for (int at = 0; at < (KINDS + 1) * MOVES; at++)
        Py_CLEAR(self->moves[at / MOVES][at % MOVES]);
    Py_CLEAR(self->before);
    return 0;
}

static void tables_dealloc(PyObject *object)
{
    Tables *self = (Tables *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    tables_clear(object);
    for (uint32_t at = 0; at < self->trie_count; at++) {
        Py_XDECREF(self->tries[at].labels);
        for (int array = 0; array < ARRAYS; array++)
            PyBuffer_Release(&self->tries[at].buffers[array]);
    }
    free(self->tries);
    Map *maps[] = {&self->others, &self->reads, &self->leads, &self->places};
    for (size_t at = 0; at < sizeof(maps) / sizeof(maps[0]); at++) {
        free(maps[at]->keys);
        free(maps[at]->values);
    }
    free(self->read.numbers);
    free(self->chars);
    free(self->begun);
    free(self->positions);
    free(self->nodes);
    free(self->stages);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF((PyObject *)type);
}

static PyMethodDef tables_methods[] = {
    {"step", (PyCFunction)(void (*)(void))step, METH_FASTCALL, step_doc},
    {"number", number, METH_VARARGS, number_doc},
    {"node", node, METH_O, node_doc},
    {"size", size, METH_NOARGS, size_doc},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot tables_slots[] = {
    {Py_tp_init, tables_init},         {Py_tp_new, PyType_GenericNew}, {Py_tp_dealloc, tables_dealloc},
    {Py_tp_traverse, tables_traverse}, {Py_tp_clear, tables_clear},     {Py_tp_methods, tables_methods},
    {Py_tp_doc, "See native_words.py."}, {0, NULL},
};

static PyType_Spec tables_spec = {
    "gateway.automata._ways.Tables", sizeof(Tables), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE, tables_slots,
};

static struct PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT, "_ways", "Open ways of automata of words, in C.", -1, NULL, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__ways(void)
{
    PyObject *module = PyModule_Create(&module_definition);
    PyObject *type = module == NULL ? NULL : PyType_FromSpec(&tables_spec);
    if (type == NULL || PyModule_AddType(module, (PyTypeObject *)type) < 0)
        Py_CLEAR(module);
    Py_XDECREF(type);
    return module;
}
