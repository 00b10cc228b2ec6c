/* How `_bytes_path.c` takes events. */

/* A figure, a new reference. */
static PyObject *number_of(Part figure)
{
    long long number = 0;
    for (Py_ssize_t at = 0; at < figure.size; at++)
        number = number * 10 + figure.text[at] - '0';
    return PyLong_FromLongLong(number);
}

/* Counts what an event says of tokens; -1 with an exception. */
static int note_usage(const Path *self, const Part *found)
{
    PyObject *prompt = number_of(found[self->prompt]), *answer = number_of(found[self->answer]);
    PyObject *usage = prompt == NULL || answer == NULL ? NULL : PyTuple_Pack(2, prompt, answer);
    const int done = usage == NULL ? -1 : set(self->at[GUARD], &names.usage, usage);
    Py_XDECREF(prompt);
    Py_XDECREF(answer);
    Py_XDECREF(usage);
    return done;
}

/* The content, a new reference; NULL with an exception, or without one if it is none. */
static PyObject *decoded(const Path *self, Part content, int plain)
{
    if (plain)
        return PyUnicode_FromStringAndSize(content.text, content.size);
    PyObject *quoted = PyBytes_FromStringAndSize(NULL, content.size + 2);
    if (quoted == NULL)
        return NULL;
    char *to = PyBytes_AsString(quoted);
    to[0] = to[content.size + 1] = '"';
    memcpy(to + 1, content.text, (size_t)content.size);
    PyObject *given = CALL(DECODE, quoted);
    Py_DECREF(quoted);
    if (given == NULL && PyErr_ExceptionMatches(PyExc_ValueError))
        PyErr_Clear();
    if (given != NULL && !PyUnicode_Check(given)) {
        Py_DECREF(given);
        PyErr_SetString(PyExc_TypeError, "decode returned no text");
        return NULL;
    }
    return given;
}

/* The state behind `given`, a new reference; None where it is remarkable; NULL with an exception. */
static PyObject *stepped(const Path *self, PyObject *given)
{
    PyObject *machine = get(self->at[CURSOR], &names.machine);
    PyObject *state = machine == NULL ? NULL : PyObject_CallFunctionObjArgs(self->at[OVER_WORDS], machine,
                                                                            self->state.state, given, NULL);
    Py_XDECREF(machine);
    return state;
}

/* Steps over `given`; the length of the live suffix, -1 where something is remarkable and nothing has happened, -2 with
   an exception. */
static Py_ssize_t scan(Path *self, PyObject *given, Py_ssize_t length)
{
    PyObject *found;
    if (self->state.state == NULL) {
        found = PyObject_CallMethodObjArgs(self->at[SCANNER], names.scan_quickly, given, NULL);
    } else {
        PyObject *state = stepped(self, given);
        if (state == NULL)
            return -2;
        if (state == Py_None) {
            Py_DECREF(state);
            return -1;
        }
        found = get(state, &names.live);
        if (found != NULL && PyLong_AsSsize_t(found) < 0) { /* not computed yet */
            Py_CLEAR(found);
            PyObject *machine = PyErr_Occurred() ? NULL : get(self->at[CURSOR], &names.machine);
            found = machine == NULL ? NULL : PyObject_CallMethodObjArgs(machine, names.live.name, state, NULL);
            Py_XDECREF(machine);
        }
        if (found != NULL) {
            REPLACE(self->state.state, Py_NewRef(state));
            self->state.stepped += length;
        }
        Py_DECREF(state);
    }
    if (found == NULL)
        return -2;
    Py_ssize_t live = found == Py_None ? -1 : PyLong_AsSsize_t(found);
    Py_DECREF(found);
    return PyErr_Occurred() ? -2 : live;
}

/* May as many characters be kept as come out at most, where any are? */
static int may_keep(const Path *self, Py_ssize_t length)
{
    return self->at[TALLY] == NULL || self->state.left >= PyUnicode_GetLength(self->state.held) + length;
}

/* What comes out once `given` has been scanned, a new reference, which is kept; what is held is counted as in
   ChannelText.note_held. NULL with an exception. */
static PyObject *released(Path *self, PyObject *given, Py_ssize_t live)
{
    State *state = &self->state;
    PyObject *held = PyUnicode_Concat(state->held, given), *shown;
    const Py_ssize_t length = held == NULL ? -1 : PyUnicode_GetLength(held);
    const Py_ssize_t cut = length > live ? length - live : 0, kept = length - cut;
    shown = length < 0 ? NULL : PyUnicode_Substring(held, 0, cut);
    if (shown != NULL && cut > 0)
        REPLACE(held, PyUnicode_Substring(held, cut, length));
    if (shown == NULL || held == NULL)
        goto failed;
    REPLACE(state->held, held);
    held = NULL;
    state->cut += cut;
    observe(&self->held, (double)kept);
    if (state->since != Py_None && (cut > 0 || kept == 0)) {
        const double waited = PyFloat_AsDouble(state->now) - PyFloat_AsDouble(state->since);
        if (PyErr_Occurred())
            goto failed;
        observe(&self->hold, waited);
        REPLACE(state->since, Py_NewRef(kept ? state->now : Py_None));
    } else if (kept && state->since == Py_None)
        REPLACE(state->since, Py_NewRef(state->now));
    if (self->at[TALLY] != NULL && cut > 0) {
        PyObject *done = CALL(KEEP, shown);
        if (done == NULL)
            goto failed;
        Py_DECREF(done);
        state->left -= cut;
    }
    return shown;
failed:
    Py_XDECREF(held);
    Py_XDECREF(shown);
    return NULL;
}

/* The number of the event that is sent, in `digits`; -1 with an exception. */
static int write_number(Path *self, Part *number, char *digits)
{
    char *at = digits + MAX_NUMBER;
    if (self->state.number < 0) {
        PyErr_SetString(PyExc_ValueError, "the number of an event is not known");
        return -1;
    }
    Py_ssize_t rest = self->state.number++;
    do
        *--at = (char)('0' + rest % 10);
    while ((rest /= 10) > 0);
    *number = (Part){at, digits + MAX_NUMBER - at};
    return 0;
}

/* The event with this content, a new reference. */
static PyObject *shown_event(Path *self, PyObject *shown, Part *found)
{
    PyObject *encoded = NULL, *event;
    Part *content = &found[self->content];
    char digits[MAX_NUMBER];
    content->text = PyUnicode_AsUTF8AndSize(shown, &content->size);
    if (content->text == NULL) {
        if (!PyErr_ExceptionMatches(PyExc_UnicodeError)) /* half a surrogate pair, which JSON can write */
            return NULL;
        PyErr_Clear();
    }
    if (content->text == NULL || !is_plain(content->text, content->size)) {
        encoded = CALL(ENCODE, shown);
        if (encoded != NULL)
            REPLACE(encoded, CALL(ESCAPE, encoded));
        if (encoded == NULL)
            return NULL;
        if (!PyBytes_Check(encoded) || PyBytes_Size(encoded) < 2) {
            Py_DECREF(encoded);
            PyErr_SetString(PyExc_TypeError, "encode returned no string's bytes");
            return NULL;
        }
        *content = (Part){PyBytes_AsString(encoded) + 1, PyBytes_Size(encoded) - 2};
    }
    event = self->numbered && write_number(self, &found[self->event.count], digits) < 0 ? NULL : event_of(&self->shown, found);
    Py_XDECREF(encoded);
    return event;
}

/* Takes one event. Where it ends; 0 if it was not taken, -1 with an exception. */
static Py_ssize_t relay_event(Path *self, const char *data, Py_ssize_t at, Py_ssize_t size, PyObject **sent)
{
    Part found[MAX_PLACES + 1]; /* the last is the number of the event that is sent */
    int plain = 1;
    Py_ssize_t begin = at;
    if (size - at >= self->before.size && memcmp(data + at, self->before.text, (size_t)self->before.size) == 0)
        begin += self->before.size;
    if (size - begin < LINE_SIZE || memcmp(data + begin, LINE, LINE_SIZE) != 0)
        return 0;
    Py_ssize_t end = find_places(&self->event, data, begin + LINE_SIZE, size, found, &plain);
    if (end == 0 || end - at > self->limit || size - end < EVENT_END_SIZE ||
        memcmp(data + end, EVENT_END, EVENT_END_SIZE) != 0)
        return 0;
    PyObject *given = decoded(self, found[self->content], plain);
    if (given == NULL)
        return PyErr_Occurred() ? -1 : 0;
    const Py_ssize_t length = PyUnicode_GetLength(given);
    /* Where a backtick stands JSON may begin, which is a text of its own. */
    const Py_ssize_t fence = PyUnicode_FindChar(given, '`', 0, length, 1);
    const int may = fence == -2 ? -1 : length > self->piece || fence >= 0 ? 0 : may_keep(self, length);
    Py_ssize_t live = may > 0 ? scan(self, given, length) : may - 1;
    PyObject *shown = live < 0 ? NULL : released(self, given, live), *event = NULL;
    Py_DECREF(given);
    if (shown == NULL)
        return live == -1 ? 0 : -1;
    end += EVENT_END_SIZE;
    if (self->prompt >= 0 && note_usage(self, found) < 0)
        end = -1;
    else if (PyUnicode_GetLength(shown) > 0 || (length == 0 && self->empties))
        end = (event = shown_event(self, shown, found)) == NULL ? -1 : end;
    else if (self->bare.count >= 0)
        end = (event = event_of(&self->bare, found)) == NULL ? -1 : end;
    Py_DECREF(shown);
    if (*sent == NULL)
        *sent = event;
    else if (event != NULL) {
        PyBytes_ConcatAndDel(sent, event);
        end = *sent == NULL ? -1 : end;
    }
    return end;
}

/* Takes events until one is not taken. Where the next one begins; -1 with an exception. */
static Py_ssize_t relay_events(Path *self, const char *data, Py_ssize_t at, Py_ssize_t size, PyObject **sent)
{
    while (at < size) {
        const Py_ssize_t end = relay_event(self, data, at, size, sent);
        if (end <= 0)
            return end < 0 ? -1 : at;
        at = end;
    }
    return at;
}

PyDoc_STRVAR(feed_doc, "What to send for a read; None where not all of it was taken. `now` in seconds.");

static PyObject *feed(PyObject *object, PyObject *const *arguments, Py_ssize_t count)
{
    Path *self = (Path *)object;
    if (!self->ready || count != 2 || !PyBytes_Check(arguments[0]) || !PyFloat_Check(arguments[1])) {
        PyErr_SetString(PyExc_TypeError, "feed takes bytes and a float");
        return NULL;
    }
    PyObject *now = arguments[1], *sent = NULL;
    const char *data = PyBytes_AsString(arguments[0]);
    const Py_ssize_t size = PyBytes_Size(arguments[0]);
    if (read_state(self, now) < 0)
        return NULL;
    const Py_ssize_t at = relay_events(self, data, 0, size, &sent);
    if (at < 0) {
        Py_XDECREF(sent);
        return NULL;
    }
    if (sent == NULL && (sent = PyBytes_FromStringAndSize(NULL, 0)) == NULL)
        return NULL;
    if (at == size)
        return sent;
    PyObject *rest = write_state(self) < 0 ? NULL : PyBytes_FromStringAndSize(data + at, size - at);
    if (rest == NULL) {
        Py_DECREF(sent);
        return NULL;
    }
    REPLACE(self->at[SENT], sent);
    REPLACE(self->at[REST], rest);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(write_back_doc, "Write down what has changed: to be called before anything else looks at it.");

static PyObject *write_back(PyObject *object, PyObject *Py_UNUSED(none))
{
    if (write_state((Path *)object) < 0)
        return NULL;
    Py_RETURN_NONE;
}
