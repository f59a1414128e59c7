// hako, the command-line tool.
#include "tool/program.h"

int main(int argc, char** argv) { return hako::tool::RunProgram(argc, argv); }
