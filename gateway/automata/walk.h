/* `LiteralMachine.walk` for other modules in C: what `entry` of `gateway.automata._walk` has. */

#ifndef GATEWAY_AUTOMATA_WALK_H
#define GATEWAY_AUTOMATA_WALK_H

#define WALK_NAME "gateway.automata._walk.entry"

/* The state of a machine behind a state and a text, a new reference, None where only single steps will do; NULL with an
   exception. */
typedef struct {
    PyObject *(*walk)(PyObject *machine, PyObject *from, PyObject *text);
} Walk;

#endif
