# A name that would set the terminal's title.
{
  printf 'GGUF\003\000\000\000'
  printf '\000\000\000\000\000\000\000\000'
  printf '\001\000\000\000\000\000\000\000'
  printf '\014\000\000\000\000\000\000\000general.name'
  printf '\010\000\000\000'
  printf '\014\000\000\000\000\000\000\000x\033]0;owned\007y'
} > named.gguf
tierpack inspect named.gguf
