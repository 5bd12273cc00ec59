/** Signing in: by the printed link, whose code is behind the `#`, or by a token. */
import { Button, PasswordInput } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import { useNavigate, useSearch } from '@tanstack/react-router'
import { useEffect, useRef, useState } from 'react'
import { toProblem } from '../api/client.ts'
import { useTitle } from '../api/queries.ts'
import { signIn } from '../api/session.ts'
import icon from '../icon.svg'
import { submitting } from '../ui/submitting.ts'

/** Taken out of the address at once: neither history nor a bookmark keeps it. */
const takeFromAddress = (name: 'code' | 'id_token'): string | null => {
  const found = new URLSearchParams(location.hash.slice(1)).get(name)
  if (found !== null) history.replaceState(null, '', location.pathname + location.search)
  return found
}

/** Only a path of the console, as a browser reads it: never an address of another site. */
const pathWithin = (to = '/'): string => {
  const url = URL.parse(to, location.origin)
  const path = url === null || url.origin !== location.origin ? '/' : url.pathname + url.search
  return path.startsWith('//') ? '/' : path
}

const startName = 'slipway.sign-in-started'
const longestMs = 600_000

/** An attacker's link must not sign a person in to the attacker's account. */
const noteStart = (): void => localStorage.setItem(startName, String(Date.now()))
const wasStartedHere = (): boolean => {
  const at = Number(localStorage.getItem(startName) ?? 0)
  localStorage.removeItem(startName)
  return Date.now() - at < longestMs
}

const useProviders = () =>
  useQuery({
    queryKey: ['ways to sign in'],
    queryFn: async () => ((await (await fetch('/console/ways')).json()) as { oidc: boolean }).oidc,
    staleTime: Number.POSITIVE_INFINITY,
    retry: false,
  })

export const SignIn = () => {
  useTitle('Sign in')
  const { to } = useSearch({ from: '/sign-in' })
  const navigate = useNavigate()
  const providers = useProviders()
  const [token, setToken] = useState('')
  const [isBusy, setBusy] = useState(false)
  const [problem, setProblem] = useState<string | null>(null)
  const proven = useRef(false)
  const enter = async (proof: { token: string } | { code: string }): Promise<void> => {
    setBusy(true)
    setProblem(null)
    try {
      await signIn(proof)
      await navigate({ href: pathWithin(to), replace: true })
    } catch (error) {
      const { status, code, message } = toProblem(error)
      setProblem(
        status === 401 && code !== 'link_used'
          ? 'This token is not valid: it may have expired or been revoked.'
          : message,
      )
      setBusy(false)
    }
  }
  useEffect(() => {
    if (proven.current) return
    proven.current = true
    const code = takeFromAddress('code')
    const idToken = takeFromAddress('id_token')
    if (code !== null) void enter({ code })
    else if (idToken === null) return
    else if (wasStartedHere()) void enter({ token: idToken })
    else setProblem('This sign-in was not started in this browser, or took too long: start again.')
  })
  const onSubmit = submitting(() => {
    if (token.trim() !== '') void enter({ token: token.trim() })
  })
  return (
    <main className="center-page" id="content">
      <form className="card sign-in stack" onSubmit={onSubmit}>
        <div className="row">
          <img src={icon} alt="" width={32} height={32} />
          <h1>Slipway</h1>
        </div>
        <PasswordInput
          label="Token"
          description="An API token. The first start prints the admin token, and keeps it in .slipway/admin-token."
          value={token}
          onChange={(event) => setToken(event.currentTarget.value)}
          error={problem}
          autoComplete="off"
          autoFocus
          visibilityToggleButtonProps={{ 'aria-label': 'Show the token' }}
        />
        <Button type="submit" loading={isBusy}>
          Sign in
        </Button>
        {providers.data === true ? (
          <Button
            component="a"
            variant="default"
            href={`/auth/sign-in?return_to=${encodeURIComponent('/sign-in')}`}
            onClick={noteStart}
            onAuxClick={noteStart}
          >
            Sign in with your provider
          </Button>
        ) : null}
      </form>
    </main>
  )
}
