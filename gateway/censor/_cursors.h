/* How `_scanner.c` steps the automaton of one cursor. */

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
