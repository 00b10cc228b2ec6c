/* `Scanner.scan_quickly`, `over_words` and `over_patterns` of gateway/censor/scanner.py, to the letter: those say what is
   right, and the same tests run for both. Only the stable ABI is used. Every object that is read is checked for its type
   where Python code could have put another there. */

#include "../attributes.h"
#include "../automata/walk.h"

static struct {
    Attribute literals, patterns, readings, scanned, unusual;           /* of a scanner */
    Attribute folded, jumps, machine, state;                            /* of a word automaton's cursor */
    Attribute exact, max_hold, pattern_machine, quick;                  /* of a pattern machine's */
    Attribute arrival, leaps, live, moves, pattern_live;                /* of states */
    PyObject *drop_carried, *leap, *walk, *empty, *undecided, *walking;
} names;
static const Walk *walk_of_tries; /* NULL where it is not in C */

#define MAX_LEAP 16 /* of gateway.automata.machine */
#define FEW 16      /* cursors of almost every scanner */
#define CALL(object, name, ...) PyObject_CallMethodObjArgs(object, name, __VA_ARGS__, NULL)

static PyObject *wrong(const char *problem)
{
    PyErr_SetString(PyExc_TypeError, problem);
    return NULL;
}

/* -- one automaton ------------------------------------------------------------------------------------------------- */

/* The state behind the text, a new reference; None where a character is remarkable, NULL with an exception. */
static PyObject *over_words(PyObject *machine, PyObject *from, PyObject *text)
{
    const int walks = walk_of_tries != NULL && (PyObject *)Py_TYPE(machine) == names.walking;
    if (walks) {
        PyObject *reached = walk_of_tries->walk(machine, from, text);
        if (reached != Py_None)
            return reached;
        Py_DECREF(reached); /* words end in it, which single steps before may have shown to be no whole words */
    }
    const Py_ssize_t length = PyUnicode_GetLength(text);
    PyObject *state = Py_NewRef(from);
    for (Py_ssize_t at = 0; at < length; at++) {
        PyObject *key = PyDict_Check(state) ? PyUnicode_FromOrdinal((int)PyUnicode_ReadChar(text, at))
                                            : wrong("a state is no table");
        PyObject *target = key == NULL ? NULL : PyDict_GetItemWithError(state, key); /* borrowed */
        Py_XINCREF(target);
        Py_XDECREF(key);
        Py_DECREF(state);
        if (target == NULL)
            return PyErr_Occurred() ? NULL : walks ? Py_NewRef(Py_None) : CALL(machine, names.walk, from, text);
        state = target;
        PyObject *arrival = get(state, &names.arrival);
        Py_XDECREF(arrival);
        if (arrival != Py_None) {
            Py_DECREF(state);
            return arrival == NULL ? NULL : Py_NewRef(Py_None);
        }
    }
    return state;
}

/* The state behind a character, a new reference. */
static PyObject *after(PyObject *state, Py_UCS4 character)
{
    PyObject *key = PyUnicode_FromOrdinal((int)character);
    PyObject *target = key == NULL || !PyDict_Check(state) ? NULL : PyDict_GetItemWithError(state, key); /* borrowed */
    if (target != NULL)
        Py_INCREF(target);
    else if (key != NULL && !PyErr_Occurred())
        target = PyObject_GetItem(state, key); /* it computes what it lacks */
    Py_XDECREF(key);
    return target;
}

/* The offset in a register, which must be there; -1 with an exception. */
static Py_ssize_t offset_of(PyObject *registers, Py_ssize_t at)
{
    PyObject *found = PyList_GetItem(registers, at); /* borrowed, as is what is in it */
    PyObject *offset = found == NULL ? NULL : PyTuple_GetItem(found, 0);
    return offset == NULL ? -1 : PyLong_AsSsize_t(offset);
}

/* Might a beginning grow too old within a text? -1 with an exception. */
static int may_overgrow(PyObject *cursor, PyObject *registers, Py_ssize_t length, Py_ssize_t scanned)
{
    const Py_ssize_t most = get_number(cursor, &names.max_hold);
    if (most == -1 && PyErr_Occurred())
        return -1;
    if (PyList_Size(registers) == 0)
        return length > most;
    const Py_ssize_t begin = offset_of(registers, 0);
    return PyErr_Occurred() ? -1 : length + scanned - begin > most;
}

/* A list of `count` registers, of which the first `kept` are these, a new reference. */
static PyObject *first_of(PyObject *registers, Py_ssize_t kept, Py_ssize_t count)
{
    PyObject *some = PyList_New(count);
    for (Py_ssize_t place = 0; some != NULL && place < kept; place++) {
        PyObject *one = Py_XNewRef(PyList_GetItem(registers, place));
        if (one == NULL || PyList_SetItem(some, place, one) < 0)
            Py_CLEAR(some);
    }
    return some;
}

/* One of the registers behind moves, a new reference; into `same` whether it is the one that was in its place. `before`
   is NULL for moves of a leap, as below. */
static PyObject *register_of(PyObject *registers, PyObject *moves, Py_ssize_t place, Py_ssize_t offset, PyObject *before,
                             int *same)
{
    PyObject *move = PyTuple_GetItem(moves, place), *taken = before; /* borrowed */
    if (before == NULL && (taken = PyTuple_GetItem(move, 1)) == NULL)
        return NULL;
    const Py_ssize_t number = PyLong_AsSsize_t(before == NULL ? PyTuple_GetItem(move, 0) : move);
    if (number == -1 && PyErr_Occurred())
        return NULL;
    const int is_old = before == NULL ? taken == Py_None : number >= 0;
    *same = is_old && number == place;
    if (is_old)
        return Py_XNewRef(PyList_GetItem(registers, number)); /* checks the index */
    PyObject *begin = PyLong_FromSsize_t(before == NULL ? offset + number : offset);
    PyObject *one = begin == NULL ? NULL : PyTuple_Pack(2, begin, taken);
    Py_XDECREF(begin);
    return one;
}

/* The registers behind moves, a new reference; the same list where nothing changes. `moves` of a state are the numbers of
   registers, and -1 for one that is taken at `offset` and `before`; those of a leap, where that is NULL, are pairs, and
   offsets in them count from `offset`. */
static PyObject *moved_by(PyObject *registers, PyObject *moves, Py_ssize_t offset, PyObject *before)
{
    if (!PyTuple_Check(moves))
        return wrong("moves are a tuple");
    const Py_ssize_t count = PyTuple_Size(moves);
    PyObject *moved = NULL;
    for (Py_ssize_t place = 0; place < count; place++) {
        int same = 0;
        PyObject *one = register_of(registers, moves, place, offset, before, &same);
        if (one != NULL && same && moved == NULL)
            Py_DECREF(one);
        else if (one == NULL || (moved == NULL && (moved = first_of(registers, place, count)) == NULL)) {
            Py_XDECREF(one);
            Py_XDECREF(moved);
            return NULL;
        } else if (PyList_SetItem(moved, place, one) < 0) {
            Py_DECREF(moved);
            return NULL;
        }
    }
    if (moved != NULL)
        return moved;
    return count == PyList_Size(registers) ? Py_NewRef(registers) : first_of(registers, count, count);
}

/* The text from the earliest of these registers on, a new reference; `held` is that of before. */
static PyObject *text_behind(PyObject *held, PyObject *registers, PyObject *text, Py_ssize_t length, Py_ssize_t scanned)
{
    const Py_ssize_t begin = offset_of(registers, 0) - scanned;
    if (PyErr_Occurred())
        return NULL;
    if (begin >= 0)
        return PyUnicode_Substring(text, begin, length);
    PyObject *whole = PyUnicode_Concat(held, text); /* checks that both are text */
    const Py_ssize_t size = whole == NULL ? 0 : PyUnicode_GetLength(whole), back = length - begin;
    if (whole == NULL || size <= back)
        return whole;
    PyObject *behind = PyUnicode_Substring(whole, size - back, size);
    Py_DECREF(whole);
    return behind;
}

/* A `Quick` behind another one, a new reference. */
static PyObject *place_of(PyObject *quick, PyObject *state, PyObject *registers, PyObject *text, Py_ssize_t length,
                          Py_ssize_t scanned)
{
    if (PyList_Size(registers) > 0) {
        PyObject *behind = text_behind(PyTuple_GetItem(quick, 2), registers, text, length, scanned);
        PyObject *place = behind == NULL ? NULL : PyTuple_Pack(3, state, registers, behind);
        Py_XDECREF(behind);
        return place;
    }
    if (state == PyTuple_GetItem(quick, 0) && registers == PyTuple_GetItem(quick, 1))
        return Py_NewRef(quick);
    return PyTuple_Pack(3, state, registers, names.empty);
}

/* `try_quickly` for a text that is too long to be looked up as a whole. */
static PyObject *try_each(PyObject *quick, PyObject *text, Py_ssize_t length, Py_ssize_t scanned)
{
    PyObject *state = Py_NewRef(PyTuple_GetItem(quick, 0)), *moved = Py_NewRef(PyTuple_GetItem(quick, 1)), *place = NULL;
    for (Py_ssize_t at = 0; at < length; at++) {
        PyObject *target = after(state, PyUnicode_ReadChar(text, at));
        PyObject *moves = target == NULL ? NULL : get(target, &names.moves);
        if (moves != NULL && moves != Py_None && target != names.undecided) {
            PyObject *registered = moved_by(moved, moves, scanned + at, state);
            Py_DECREF(moved);
            moved = registered;
        }
        Py_XDECREF(moves);
        Py_DECREF(state);
        state = target;
        if (moves == NULL || moved == NULL || state == names.undecided)
            break;
    }
    if (state == names.undecided)
        place = Py_NewRef(Py_None);
    else if (!PyErr_Occurred())
        place = place_of(quick, state, moved, text, length, scanned);
    Py_XDECREF(state);
    Py_XDECREF(moved);
    return place;
}

/* Where the fast path leads with the text, a new reference to a `Quick`; None where it cannot decide, NULL with an
   exception. */
static PyObject *leap(PyObject *cursor, PyObject *quick, PyObject *text, Py_ssize_t length, Py_ssize_t scanned)
{
    PyObject *state = PyTuple_GetItem(quick, 0), *registers = PyTuple_GetItem(quick, 1);
    const int too_long = may_overgrow(cursor, registers, length, scanned);
    if (too_long)
        return too_long < 0 ? NULL : Py_NewRef(Py_None);
    if (length > MAX_LEAP)
        return try_each(quick, text, length, scanned);
    PyObject *leaps = get(state, &names.leaps), *machine = NULL, *place = NULL;
    if (leaps == NULL || !PyDict_Check(leaps)) {
        Py_XDECREF(leaps);
        return leaps == NULL ? NULL : wrong("leaps are no table");
    }
    PyObject *known = Py_XNewRef(PyDict_GetItemWithError(leaps, text));
    Py_DECREF(leaps);
    if (known == NULL && !PyErr_Occurred() && (machine = get(cursor, &names.pattern_machine)) != NULL)
        known = CALL(machine, names.leap, state, text);
    Py_XDECREF(machine);
    if (known == NULL || known == Py_None)
        return known;
    PyObject *target = PyTuple_GetItem(known, 0), *moves = target == NULL ? NULL : PyTuple_GetItem(known, 1);
    PyObject *moved = moves == NULL ? NULL : moved_by(registers, moves, scanned, NULL);
    if (moved != NULL)
        place = place_of(quick, target, moved, text, length, scanned);
    Py_XDECREF(moved);
    Py_DECREF(known);
    return place;
}

static PyObject *try_quickly(PyObject *cursor, PyObject *text, Py_ssize_t length, Py_ssize_t scanned)
{
    PyObject *exact = get(cursor, &names.exact);
    Py_XDECREF(exact);
    if (exact != Py_None)
        return exact == NULL ? NULL : Py_NewRef(Py_None);
    PyObject *quick = get(cursor, &names.quick), *place = NULL;
    if (quick == NULL)
        return NULL;
    if (!PyTuple_Check(quick) || PyTuple_Size(quick) != 3 || !PyList_Check(PyTuple_GetItem(quick, 1)))
        wrong("a place of the fast path is a state, registers and a text");
    else
        place = leap(cursor, quick, text, length, scanned);
    Py_DECREF(quick);
    return place;
}

/* Takes a text; the length of the live suffix, -1 with an exception. */
static Py_ssize_t advance(PyObject *cursor, PyObject *reached, Py_ssize_t scanned)
{
    const Py_ssize_t live =
        set(cursor, &names.quick, reached) < 0 ? -1 : get_number(PyTuple_GetItem(reached, 0), &names.pattern_live);
    if (PyErr_Occurred() || live < 0)
        return PyErr_Occurred() ? -1 : 0;
    const Py_ssize_t begin = offset_of(PyTuple_GetItem(reached, 1), live);
    return PyErr_Occurred() ? -1 : scanned - begin;
}

/* Takes the text; the length of the live suffix, -1 with an exception. */
static Py_ssize_t advance_words(PyObject *cursor, PyObject *state, Py_ssize_t length)
{
    const Py_ssize_t folded = get_number(cursor, &names.folded);
    if (PyErr_Occurred() || set(cursor, &names.state, state) < 0 ||
        set_number(cursor, &names.folded, folded + length) < 0)
        return -1;
    Py_ssize_t live = get_number(state, &names.live);
    if (live < 0 && !PyErr_Occurred()) { /* not computed yet */
        PyObject *machine = get(cursor, &names.machine);
        PyObject *found = machine == NULL ? NULL : CALL(machine, names.live.name, state);
        live = found == NULL ? -1 : PyLong_AsSsize_t(found);
        Py_XDECREF(machine);
        Py_XDECREF(found);
    }
    return PyErr_Occurred() ? -1 : live;
}

/* -- all of them --------------------------------------------------------------------------------------------------- */

/* Where a cursor gets to with a text; references. */
typedef struct {
    PyObject *cursor, *place;
    int is_words;
} Step;

/* Where a word automaton's cursor gets to, a new reference; None where a character is remarkable, NULL with an exception. */
static PyObject *try_words(PyObject *cursor, PyObject *text)
{
    const int jumps = is_true(cursor, &names.jumps);
    PyObject *machine = jumps ? NULL : get(cursor, &names.machine);
    PyObject *state = machine == NULL ? NULL : get(cursor, &names.state);
    PyObject *place = jumps > 0 ? Py_NewRef(Py_None) : state == NULL ? NULL : over_words(machine, state, text);
    Py_XDECREF(machine);
    Py_XDECREF(state);
    return place;
}

/* Where all cursors get to; `tried` counts them. -1 where a character is remarkable, or with an exception. */
static int try_all(Step *steps, PyObject *words, PyObject *patterns, PyObject *text, Py_ssize_t scanned, Py_ssize_t *tried)
{
    const Py_ssize_t length = PyUnicode_GetLength(text), count = PyList_Size(words), all = count + PyList_Size(patterns);
    for (*tried = 0; *tried < all; ++*tried) {
        const Py_ssize_t at = *tried;
        PyObject *cursor = at < count ? PyList_GetItem(words, at) : PyList_GetItem(patterns, at - count); /* borrowed */
        if (cursor == NULL)
            return -1;
        Py_INCREF(cursor);
        PyObject *place = at < count ? try_words(cursor, text) : try_quickly(cursor, text, length, scanned);
        if (place == NULL || place == Py_None) {
            Py_DECREF(cursor);
            Py_XDECREF(place);
            return -1;
        }
        steps[at] = (Step){cursor, place, at < count};
    }
    return 0;
}

/* Takes the text with all cursors, or with none; the length of the live suffix, -1 where a character is remarkable, -2
   with an exception. */
static Py_ssize_t take(Step *steps, PyObject *words, PyObject *patterns, PyObject *text, Py_ssize_t scanned)
{
    const Py_ssize_t length = PyUnicode_GetLength(text);
    Py_ssize_t tried, live = try_all(steps, words, patterns, text, scanned, &tried);
    for (Py_ssize_t at = tried; at > 0; at--) {
        const Step step = steps[at - 1];
        if (live >= 0) {
            const Py_ssize_t of_this = step.is_words
                                           ? advance_words(step.cursor, step.place, length)
                                           : advance(step.cursor, step.place, scanned + length);
            live = of_this < 0 ? -1 : of_this > live ? of_this : live;
        }
        Py_DECREF(step.cursor);
        Py_DECREF(step.place);
    }
    return PyErr_Occurred() ? -2 : live;
}

/* `scan_quickly` for these cursors. */
static PyObject *scan(PyObject *scanner, PyObject *words, PyObject *patterns, PyObject *text, int unusual)
{
    Step few[FEW];
    const Py_ssize_t count = PyList_Size(words) + PyList_Size(patterns), scanned = get_number(scanner, &names.scanned);
    if (PyErr_Occurred())
        return NULL;
    Step *steps = count <= FEW ? few : PyMem_Malloc((size_t)count * sizeof(Step));
    if (steps == NULL)
        return PyErr_NoMemory();
    const Py_ssize_t live = take(steps, words, patterns, text, scanned);
    if (steps != few)
        PyMem_Free(steps);
    if (live < 0)
        return live < -1 ? NULL : Py_NewRef(Py_None);
    if (set_number(scanner, &names.scanned, scanned + PyUnicode_GetLength(text)) < 0)
        return NULL;
    PyObject *dropped = unusual ? PyObject_CallMethodObjArgs(scanner, names.drop_carried, NULL) : Py_NewRef(Py_None);
    if (dropped == NULL)
        return NULL;
    Py_DECREF(dropped);
    return PyLong_FromSsize_t(live);
}

PyDoc_STRVAR(scan_doc, "See scanner.py.");

static PyObject *scan_quickly(PyObject *scanner, PyObject *text)
{
    if (!PyUnicode_Check(text))
        return wrong("a scanner takes text");
    const int unusual = is_true(scanner, &names.unusual);
    if (unusual < 0)
        return NULL;
    if (unusual) {
        PyObject *readings = get(scanner, &names.readings);
        Py_XDECREF(readings);
        if (readings != Py_None)
            return readings == NULL ? NULL : Py_NewRef(Py_None);
    }
    PyObject *words = get(scanner, &names.literals), *patterns = words == NULL ? NULL : get(scanner, &names.patterns);
    PyObject *found = NULL;
    if (patterns != NULL)
        found = PyList_Check(words) && PyList_Check(patterns) ? scan(scanner, words, patterns, text, unusual)
                                                              : wrong("cursors are lists");
    Py_XDECREF(words);
    Py_XDECREF(patterns);
    return found;
}

/* -- whole texts --------------------------------------------------------------------------------------------------- */

static PyObject *pass_words(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    (void)module;
    if (count != 3 || !PyUnicode_Check(arguments[2]))
        return wrong("a machine, a state and a text");
    return over_words(arguments[0], arguments[1], arguments[2]);
}

static PyObject *over_patterns(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    (void)module;
    if (count != 2 || !PyUnicode_Check(arguments[1]))
        return wrong("a state and a text");
    const Py_ssize_t length = PyUnicode_GetLength(arguments[1]);
    PyObject *state = Py_NewRef(arguments[0]);
    for (Py_ssize_t at = 0; state != NULL && at < length; at++) {
        PyObject *target = after(state, PyUnicode_ReadChar(arguments[1], at));
        Py_DECREF(state);
        state = target;
        if (state == names.undecided) {
            Py_DECREF(state);
            return Py_NewRef(Py_None);
        }
    }
    return state;
}

/* -- the module ---------------------------------------------------------------------------------------------------- */

static PyMethodDef scan_method = {"scan_quickly", scan_quickly, METH_O, scan_doc};

/* `scan_quickly` as a method of a class, and what has to be known for it: the state that decides nothing, the class of
   machines of tries, and how to walk those, or None. */
static PyObject *method_of(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    (void)module;
    if (count != 4 || !PyType_Check(arguments[0]))
        return wrong("a method belongs to a class");
    const Walk *entry = arguments[3] == Py_None ? NULL : PyCapsule_GetPointer(arguments[3], WALK_NAME);
    if (entry == NULL && PyErr_Occurred())
        return NULL;
    walk_of_tries = entry;
    PyObject *old_state = names.undecided, *old_type = names.walking;
    names.undecided = Py_NewRef(arguments[1]);
    names.walking = Py_NewRef(arguments[2]);
    Py_XDECREF(old_state);
    Py_XDECREF(old_type);
    return PyDescr_NewMethod((PyTypeObject *)arguments[0], &scan_method);
}

static PyMethodDef functions[] = {
    {"method_of", (PyCFunction)(void (*)(void))method_of, METH_FASTCALL, "`scan_quickly` as a method of a class."},
    {"over_patterns", (PyCFunction)(void (*)(void))over_patterns, METH_FASTCALL, scan_doc},
    {"over_words", (PyCFunction)(void (*)(void))pass_words, METH_FASTCALL, scan_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT, "_scanner", "gateway.censor.scanner in C.", -1, functions, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__scanner(void)
{
    const struct {
        Attribute *attribute;
        const char *name;
    } opened[] = {
        {&names.literals, "literals"}, {&names.patterns, "patterns"}, {&names.readings, "readings"},
        {&names.scanned, "scanned"}, {&names.unusual, "_unusual"},
        {&names.folded, "folded"}, {&names.jumps, "jumps"}, {&names.machine, "machine"}, {&names.state, "state"},
        {&names.exact, "_exact"}, {&names.max_hold, "_max_hold"},
        {&names.pattern_machine, "_machine"}, {&names.quick, "_quick"},
        {&names.arrival, "arrival"}, {&names.leaps, "leaps"}, {&names.live, "live"}, {&names.moves, "moves"},
        {&names.pattern_live, "live"},
    };
    for (size_t at = 0; at < sizeof(opened) / sizeof(opened[0]); at++)
        if (open_attribute(opened[at].attribute, opened[at].name) < 0)
            return NULL;
    names.drop_carried = PyUnicode_InternFromString("_drop_carried");
    names.leap = PyUnicode_InternFromString("leap");
    names.walk = PyUnicode_InternFromString("walk");
    names.empty = PyUnicode_InternFromString("");
    const int done = names.drop_carried != NULL && names.leap != NULL && names.walk != NULL && names.empty != NULL;
    return done ? PyModule_Create(&module_definition) : NULL;
}
